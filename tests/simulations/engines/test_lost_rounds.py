"""A run with noise of the operating system's that was interrupted keeps its target_epsilon, whatever was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.mechanisms import noise
from fedfair.mechanisms.randomness import Source
from simulations import Experiment, run
from simulations.results.result import Result
from strategies.server import rounds as server
from strategies.server.rounds import Rounds
from tests.simulations.engines.test_checkpoint import Stopped, experiment, place, stopping_at
from tests.strategies.two_groups import two_groups

TARGET, STEPS = 2.0, 6


def made(strategy: str = "dpsgd", **more: Any) -> Experiment:
    return experiment(strategy, **{"randomness": "system", "steps": STEPS, "target_epsilon": TARGET, **more})


def moments(**more: Any) -> Experiment:
    """Describe a release of moments and three logistic steps."""
    return Experiment(**{"strategy": "moments", "features": "bounded", "model": "linear", "randomness": "system",
                         "target_epsilon": TARGET, "delta": 1e-5, "batch_size": 50, "dtype": "float64",
                         "options": {"logistic_steps": 3}, **two_groups(), "imbalance": None, **more})


def interrupted(planned: Experiment, folder: Path, stops: Sequence[int]) -> Result:
    """Run to the end, stopped before the end of each of these rounds."""
    checkpoint = place(planned, folder)
    for stop in stops:
        with pytest.raises(Stopped):
            run(planned, progress=stopping_at(stop), checkpoint=checkpoint)
    return run(planned, checkpoint=checkpoint)


@pytest.mark.parametrize("stops", [(1,), (3, 3, 4), (1,) * 7, (2, 5)])
@pytest.mark.parametrize("more", [{}, {"accountant": "pld"}, {"sync": "epoch"}, {"trust": "distributed", "clients": 3}])
def test_lost_rounds_are_charged_and_the_rest_has_noise_that_fits(more: Mapping[str, Any], stops: tuple[int, ...],
                                                                  tmp_path: Path) -> None:
    resumed, whole = interrupted(made(**more), tmp_path / "run", stops), run(made(**more))
    spent, each = resumed.ledger.guaranteed_by_group(), sum(whole.ledger.events.values()) // STEPS
    assert sum(resumed.ledger.events.values()) == each * (STEPS + len(stops))
    assert 0.98 * max(whole.ledger.guaranteed_by_group().values()) < max(spent.values()) <= TARGET


@settings(max_examples=10)
@given(st.lists(st.integers(1, STEPS), min_size=1, max_size=6))
def test_no_order_of_losses_spends_more_than_the_target(tmp_path_factory: pytest.TempPathFactory, stops: list[int]
                                                        ) -> None:
    checkpoint, planned = place(made(), tmp_path_factory.mktemp("runs") / "run"), made()
    for stop in stops:
        try:  # a round before the checkpoint is not made again, and a run that has ended is over
            result = run(planned, progress=stopping_at(stop), checkpoint=checkpoint)
        except Stopped:
            result = run(planned, checkpoint=checkpoint) if stop == stops[-1] else None
        if result is not None:
            assert max(result.ledger.guaranteed_by_group().values()) <= TARGET
            return


def test_each_round_is_charged_by_the_noise_that_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle: standard deviations as they were drawn, of rounds that were lost too."""
    drawn: list[float] = []

    def add(kind: Any, values: Mapping[str, Tensor], deviation: float, draws: Source) -> dict[str, Tensor]:
        """Add noise, and remember how much."""
        drawn.append(deviation)
        return noise.add_noise(kind, values, deviation, draws)

    monkeypatch.setattr(server, "add_noise", add)
    ledger = interrupted(made(), tmp_path / "run", (2, 2, 2, 5)).ledger
    charged: Counter[float] = Counter()
    for event, number in ledger.events.items():
        charged[round(event.guaranteed(0).multiplier, 9)] += number  # the clip norm is 1
    assert charged == Counter(round(deviation, 9) for deviation in drawn)
    assert len(charged) > 3


def test_a_last_round_that_is_lost_is_not_made_again(tmp_path: Path) -> None:
    """All is spent, so that the model is that of the rounds before."""
    kept: list[Tensor] = []

    def keep(rounds: Rounds, now: int) -> None:
        """Keep the weights after each round."""
        kept.append(next(iter(rounds.method.descent.weights.values())).clone())

    checkpoint = place(made(), tmp_path / "run")
    with pytest.raises(Stopped):
        run(made(), progress=stopping_at(STEPS), checkpoint=checkpoint, watch=keep)
    result = run(made(), checkpoint=checkpoint)
    assert sum(result.ledger.events.values()) == STEPS
    assert torch.equal(next(iter(result.model.parameters())), kept[-1])
    assert result.metrics.query("split == 'test'")["round"].max() == STEPS


def test_what_was_trained_is_kept_before_figures_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of figures charges held-out records alone, and the model stays."""
    planned, trained = moments(figures="private", figures_epsilon=1.0), []

    def stop(rounds: Rounds, *_: Any) -> None:
        """Stop where figures would be released."""
        trained.append(next(iter(rounds.method.descent.weights.values())).clone())
        raise Stopped

    checkpoint = place(planned, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "_measured", stop)
        for _ in range(2):
            with pytest.raises(Stopped):
                run(planned, checkpoint=checkpoint)
    result = run(planned, checkpoint=checkpoint)
    assert len(trained) == 2
    assert torch.equal(trained[0], trained[1])
    assert sum(result.ledger.events.values()) == 4
    assert max(result.ledger.guaranteed_by_group().values()) <= TARGET
    assert result.ledger.held_out_epsilon("test") > 1.5


def test_figures_that_are_lost_after_a_last_round_are_charged_and_no_round_is(tmp_path: Path,
                                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    planned = moments(figures="private", figures_epsilon=1.0)
    checkpoint = place(planned, tmp_path / "run")
    with pytest.raises(Stopped):
        run(planned, progress=stopping_at(4), checkpoint=checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "_measured", lambda *_: (_ for _ in ()).throw(Stopped))
        for _ in range(2):
            with pytest.raises(Stopped):
                run(planned, checkpoint=checkpoint)
    ledger, whole = run(planned, checkpoint=checkpoint).ledger, run(planned).ledger
    assert sum(ledger.events.values()) == 4
    assert max(ledger.guaranteed_by_group().values()) <= TARGET
    for part in ("valid", "test"):  # three releases, two of which were lost
        assert ledger.held_out[part].multiplier == pytest.approx(whole.held_out[part].multiplier / 3**0.5)


@pytest.mark.parametrize("stops", [(1,), (2, 2), (4,), (1, 2, 3)])
def test_moments_keep_their_target_and_make_a_front(stops: tuple[int, ...], tmp_path: Path) -> None:
    result = interrupted(moments(), tmp_path / "run", stops)
    assert max(result.ledger.guaranteed_by_group().values()) <= TARGET
    assert result.front is not None
    assert len(result.front.front.points) > 100


def test_moments_know_the_noise_that_they_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is lost after them has the noise of the steps change, not that of the moments."""
    known: dict[str, tuple[float, ...]] = {}

    def note(rounds: Rounds, now: int) -> None:
        """Note what the method says of its noise."""
        known[str(now)] = (rounds.method.deviation, *rounds.method.noises)  # type: ignore[attr-defined]

    planned = moments()
    checkpoint = place(planned, tmp_path / "run")
    with pytest.raises(Stopped):
        run(planned, progress=stopping_at(3), checkpoint=checkpoint)
    run(planned, checkpoint=checkpoint, watch=note)
    of_moments, first, *others = known["4"]
    assert of_moments == first
    assert others == pytest.approx([1.41421 * first] * 2, rel=1e-3)  # 2 of 4 equal parts are left for 2 steps, less one


def test_where_all_is_spent_before_a_round_was_made_the_run_ends(tmp_path: Path) -> None:
    planned = moments(options={"logistic_steps": 0})
    with pytest.raises(ValueError, match="leaves too little for the 1 still to come: start again"):
        interrupted(planned, tmp_path / "run", (1,))
