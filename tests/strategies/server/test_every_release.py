"""Every noisy sum that leaves is in the ledger, in runs of any length, whether or not they are interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fedfair.mechanisms import noise
from fedfair.mechanisms.randomness import Source
from fedfair.node import noisy_sums as host
from fedfair.protocol.round import Charge, Round
from simulations import run
from simulations.engines.checkpoint import Checkpoint
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from strategies.server import rounds as base
from tests.strategies import test_contract as contract
from tests.strategies.test_contract import MODES, ONE_ROUND, PRIVATE_MODES
from tests.strategies.two_groups import two_groups

Patch = pytest.MonkeyPatch


def experiment(strategy: str, **settings: Any) -> Experiment:
    """Describe a short run of two clients: what is counted grows with their number, and so does what is charged."""
    return contract.experiment(strategy, **{**two_groups(), "imbalance": None, **settings})


class Releases:
    """Counts the noise that is drawn: sums and counts, by whether the server drew it or the nodes."""

    def __init__(self, patch: Patch) -> None:
        self.drawn: Counter[tuple[str, str]] = Counter()
        for module, who in ((base, "server"), (host, "nodes")):
            patch.setattr(module, "add_noise", self.counting(who))

    def counting(self, who: str) -> Any:
        """Return `add_noise`, which counts its calls that add some."""

        def add(kind: Any, values: Mapping[str, Tensor], deviation: float, draws: Source) -> dict[str, Tensor]:
            self.drawn[who, "counts" if list(values) == ["counts"] else "sums"] += deviation > 0
            return noise.add_noise(kind, values, deviation, draws)

        return add


def charged(result: Result) -> int:
    """Return how many noisy sums the ledger holds: of all clients together, or of each client that trains alone."""
    return sum(result.ledger.events.values())


def check(strategy: str, sync: str, steps: int, patch: Patch) -> None:
    """Fail unless the ledger has every noisy sum, and every noisy count beside one, at the end of every round."""
    seen, rounds = Releases(patch), []
    drawing = "nodes" if sync == "epoch" and not strategy.endswith("fedavg") else "server"

    def compare(running: base.Rounds, done: int) -> None:
        events = running.ledger.events
        assert seen.drawn[drawing, "sums"] == sum(events.values()) >= done, (steps, done)
        counting = sum(number for event, number in events.items() if event.count_multiplier)
        assert seen.drawn["server", "counts"] + seen.drawn["nodes", "counts"] == counting, (steps, done)
        rounds.append(done)

    result = run(experiment(strategy, sync=sync, steps=steps), watch=compare)
    assert rounds == ([1] if strategy in ONE_ROUND else [*range(1, steps + 1)])
    assert charged(result) == seen.drawn[drawing, "sums"]


@pytest.mark.parametrize(("strategy", "sync"), [mode for mode in PRIVATE_MODES if mode[0] != "fairlens"])
def test_every_release_is_in_the_ledger(strategy: str, sync: str, monkeypatch: Patch) -> None:
    check(strategy, sync, 21, monkeypatch)


def test_it_is_whatever_the_number_of_rounds(monkeypatch: Patch) -> None:
    """The last round of a run is the one that may be forgotten."""
    for steps in (1, 2, 3, 7, 19, 20, 37, 50):
        check("dpsgd", "step", steps, monkeypatch)


def test_fairlens_releases_three_exact_sums_a_round_beside_the_noisy_one_that_is_charged(monkeypatch: Patch) -> None:
    check("fairlens", "step", 20, monkeypatch)


@pytest.mark.parametrize("trust", ["local", "distributed"])
@pytest.mark.parametrize("strategy", ["dpsgd", "dpsgd-f", "dp-fedavg"])
def test_a_round_in_which_every_client_adds_its_noise_is_one_release(strategy: str, trust: str, monkeypatch: Patch
                                                                    ) -> None:
    seen = Releases(monkeypatch)
    result = run(contract.experiment(strategy, trust=trust, steps=21))
    assert seen.drawn["nodes", "sums"] == 10 * charged(result) == 210
    assert seen.drawn["server", "sums"] == 0


class StoppedError(Exception):
    """A run is interrupted."""


@pytest.mark.parametrize("randomness", ["seeded", "system"])
@pytest.mark.parametrize(("strategy", "sync"), [("dpsgd", "step"), ("dpsgd-f", "step"), ("dpsgd", "epoch"),
                                                ("dpsgd-f-quantile", "epoch"), ("dp-fedavg", "epoch")])
def test_a_run_that_is_interrupted_three_times_charges_all_that_it_released(
        strategy: str, sync: str, randomness: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """Rounds that a seed repeats are one release; others are two, and a lost one is charged besides."""
    made = experiment(strategy, sync=sync, steps=23, randomness=randomness)
    whole, seen = charged(run(made)), Releases(monkeypatch)

    def stop(end: int, done: int, rounds: int) -> None:
        if done == end:
            raise StoppedError

    checkpoint = Checkpoint(tmp_path / "out", made.settings(), 4)
    for end in (5, 6, 20):
        with pytest.raises(StoppedError):
            run(made, checkpoint=checkpoint, progress=partial(stop, end))
    result = run(made, checkpoint=checkpoint)
    released = seen.drawn["nodes" if sync == "epoch" and strategy != "dp-fedavg" else "server", "sums"]
    assert released > whole
    assert charged(result) == whole if randomness == "seeded" else charged(result) >= released


def forgetting(patch: Patch, forgets: Any) -> None:
    """Plant rounds that charge nothing."""
    charges = Round.charges

    def some(self: Round, sizes: Any) -> Iterator[Charge]:
        yield from () if forgets(self.step) else charges(self, sizes)

    patch.setattr(Round, "charges", some)


@pytest.mark.parametrize("forgets", [lambda step: step == 19, lambda step: step == 0, lambda step: step % 7 == 6])
@pytest.mark.parametrize(("strategy", "sync"), [("dpsgd", "step"), ("dpsgd-f", "epoch"), ("dp-fedavg", "epoch")])
def test_a_round_that_is_not_charged_is_noticed(strategy: str, sync: str, forgets: Any, monkeypatch: Patch) -> None:
    """`fault_C.patch`, which tests of an earlier version missed: the last round of runs of twenty and more."""
    forgetting(monkeypatch, forgets)
    with pytest.raises((AssertionError, ValueError)):
        check(strategy, sync, 20, monkeypatch)


def test_methods_without_privacy_have_no_noise_and_say_so(monkeypatch: Patch) -> None:
    for strategy, sync in [mode for mode in MODES if mode not in PRIVATE_MODES]:
        seen = Releases(monkeypatch)
        assert run(experiment(strategy, sync=sync, steps=2)).ledger.guarantee == "none"
        assert seen.drawn["server", "sums"] == seen.drawn["nodes", "sums"] == 0
