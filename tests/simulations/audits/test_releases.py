"""The audit of releases finds noise that comes back, is shared or is too small, and nothing where there is nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from fedfair.mechanisms import noise
from fedfair.mechanisms.noise import Trust
from fedfair.mechanisms.randomness import Source, source
from fedfair.node import noisy_sums as host
from simulations import Experiment
from simulations.audits.audit import DEFAULTS
from simulations.audits.releases import ReleaseAudit, audit_releases
from simulations.cli import app
from strategies import STRATEGIES
from strategies.server import rounds as base
from tests.strategies.test_contract import OPTIONS, OWN_EXCHANGE, WITHOUT_PRIVACY

Patch = pytest.MonkeyPatch
AUDITED = [name for name in STRATEGIES if name not in (*WITHOUT_PRIVACY, *OWN_EXCHANGE, "fairlens")]
MODES = [(name, sync) for name in AUDITED for sync in STRATEGIES[name].modes]
QUICK = {"split": (0.1, 0.0, 0.9), "hidden": (20,), "steps": 6, "batch_size": 40, "noise_multiplier": 1.0}


@pytest.fixture(autouse=True)
def one_thread(two_threads: None) -> None:
    """Limit PyTorch to one thread: tensors are small here."""
    torch.set_num_threads(1)


def experiment(strategy: str = "dpsgd", **settings: Any) -> Experiment:
    return Experiment(**{**DEFAULTS, **QUICK, "strategy": strategy, "options": OPTIONS.get(strategy, {}), **settings})


def kinds(found: ReleaseAudit) -> set[str]:
    return {each.test for each in found.suspicions}


@pytest.mark.parametrize(("strategy", "sync", "trust"), [
    (name, sync, trust) for (name, sync), trust in product(MODES, Trust)
    if trust is Trust.CENTRAL or name in ("dpsgd", "dpsgd-f", "gs-dp-sgd", "dp-fedavg")])  # clients' noise is all alike
def test_nothing_is_found_where_nothing_is_wrong(strategy: str, sync: str, trust: Trust) -> None:
    clients = None if strategy in ("gs-dp-sgd", "fair-dp") else 4  # those train every group on a client of its own
    found = audit_releases(experiment(strategy, sync=sync, trust=trust, clients=clients), confidence=0.999)
    assert found.suspicions == ()
    assert found.numbers > 6 * 1000


@pytest.mark.parametrize("settings", [{"noise": "discrete"}, {"randomness": "system"}])
def test_nothing_is_found_whoever_draws(settings: dict[str, Any]) -> None:
    assert not audit_releases(experiment("dpsgd-f", **settings), confidence=0.999).refuted


def at(change: Callable[..., tuple[Any, ...]]) -> Callable[[Patch], None]:
    """Plant noise that is drawn for other parts than its own: `change` returns them."""

    def plant(patch: Patch) -> None:
        for module in (base, host):
            patch.setattr(module, "source", lambda *parts: source(*change(*parts)))

    return plant


def changed(change: Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Mapping[str, Tensor]]
            ) -> Callable[[Patch], None]:
    """Plant noise that is changed after it was drawn, given the noise of the first release of the same sizes."""

    def plant(patch: Patch) -> None:
        first: dict[tuple[str, ...], Mapping[str, Tensor]] = {}

        def add(kind: Any, values: Mapping[str, Tensor], deviation: float, draws: Source) -> dict[str, Tensor]:
            noisy = noise.add_noise(kind, values, deviation, draws)
            drawn = {name: (noisy[name] - values[name]) / deviation for name in values} if deviation else {}
            if not drawn:
                return noisy
            before = first.setdefault(tuple(values), drawn)
            return {name: values[name] + deviation * now for name, now in change(drawn, before).items()}

        for module in (base, host):
            patch.setattr(module, "add_noise", add)

    return plant


def half(drawn: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return noise of which every second number is that of the first release."""
    odd = {name: torch.arange(value.numel()).view_as(value) % 2 == 1 for name, value in drawn.items()}
    return {name: torch.where(odd[name], before[name], value) for name, value in drawn.items()}


def one_layer(scale: float) -> Callable[..., Mapping[str, Tensor]]:
    """Return a change that scales the noise of the layer with the fewest numbers alone."""

    def change(drawn: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        least = min(drawn, key=lambda name: drawn[name].numel())
        return {name: value * scale if name == least else value for name, value in drawn.items()}

    return change


def shifted(drawn: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the noise of the first release, one place further."""
    if drawn is before:
        return drawn
    return {name: value.flatten().roll(1).view_as(value) for name, value in before.items()}


def mixed(drawn: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return noise a third of whose variance is that of the first release: no number of it comes twice."""
    if drawn is before:
        return drawn
    return {name: (2 / 3) ** 0.5 * value + (1 / 3) ** 0.5 * before[name] for name, value in drawn.items()}


MISTAKES: list[tuple[str, Callable[[Patch], None], dict[str, Any], set[str]]] = [
    ("every step has the noise of the first", at(lambda key, purpose, client, step=0: (key, purpose, client, 0)), {},
     {"correlated", "repeated"}),
    ("every third step has that noise again", at(lambda key, purpose, client, step=0: (key, purpose, client, step % 3)),
     {}, {"correlated", "repeated"}),
    ("only the fifth step has", at(lambda key, purpose, client, step=0: (key, purpose, client, step % 5)), {},
     {"correlated", "repeated"}),
    ("all clients have one noise", at(lambda key, purpose, client, step=0: (key, purpose, 1, step)),
     {"trust": "local"}, {"correlated", "repeated"}),
    ("all clients have one noise, in shares", at(lambda key, purpose, client, step=0: (key, purpose, 1, step)),
     {"trust": "distributed"}, {"correlated", "repeated"}),
    ("clients take turns", at(lambda key, purpose, client, step=0: (key, purpose, (client + step) % 10, 0)),
     {"trust": "local"}, {"correlated", "repeated"}),
    ("half of the numbers come back", changed(half), {}, {"correlated", "repeated"}),
    ("with the other sign", changed(lambda drawn, before: drawn if drawn is before else {
        name: -value for name, value in before.items()}), {}, {"correlated", "repeated"}),
    ("one place further", changed(shifted), {}, {"repeated"}),
    ("mixed with new noise", changed(mixed), {}, {"correlated"}),
    ("counts have the noise of the sum", at(lambda key, purpose, client, step=0: (key, "noise", client, step)),
     {"strategy": "dpsgd-f"}, {"repeated"}),
    ("counts of all clients have", at(lambda key, purpose, client, step=0: (key, "noise", client, step)),
     {"strategy": "dpsgd-f", "trust": "local"}, {"repeated"}),
    ("one layer has a third less noise", changed(one_layer(2 / 3)), {"steps": 40}, {"too small"}),
    ("one layer has no noise", changed(one_layer(0.0)), {}, {"too small", "repeated"}),
    ("local epochs share", at(lambda key, purpose, client, step=0: (key, purpose, client, step % 4)), {
     "sync": "epoch", "batch_size": 4, "clip_norm": 0.01}, {"correlated"}),
    ("participants share", at(lambda key, purpose, client, step=0: (key, purpose, 1, step)),
     {"strategy": "dp-fedavg", "trust": "local"}, {"correlated", "repeated"}),
]


@pytest.mark.parametrize(("plant", "settings", "expected"), [mistake[1:] for mistake in MISTAKES],
                         ids=[mistake[0] for mistake in MISTAKES])
def test_a_planted_mistake_is_found(plant: Callable[[Patch], None], settings: dict[str, Any], expected: set[str],
                                    monkeypatch: Patch) -> None:
    """`fault_A2.patch`, which audits and tests of an earlier version missed, and its variants."""
    plant(monkeypatch)
    found = audit_releases(experiment(**settings), confidence=0.999)
    assert found.refuted
    assert expected <= kinds(found)


def test_what_has_no_noise_to_look_at_is_refused() -> None:
    with pytest.raises(ValueError, match="sgd adds no noise with these settings"):
        audit_releases(experiment("sgd"))
    with pytest.raises(ValueError, match="dtype is 'float32', in which sums are too coarse"):
        audit_releases(experiment(dtype="float32"))
    with pytest.raises(ValueError, match="there are 1 rounds, but"):
        audit_releases(experiment(steps=1))


def test_an_audit_of_releases_is_saved_as_json(tmp_path: Path) -> None:
    found = audit_releases(experiment(steps=2))
    saved = json.loads(json.dumps(found.to_dict()))
    assert (saved["attack"], saved["refuted"], saved["releases"]) == ("releases", False, 2)


def test_the_command_says_what_it_found_and_by_its_exit_code(monkeypatch: Patch) -> None:
    settings = [f"--set={key}={json.dumps(value)}" for key, value in QUICK.items()]
    command = ["audit", "--attack", "releases", "--confidence", "0.999", *settings]
    good = CliRunner().invoke(app, command, env={"COLUMNS": "120"})
    assert good.exit_code == 0, good.output
    assert "nothing found" in good.output
    at(lambda key, purpose, client, step=0: (key, purpose, client, 0))(monkeypatch)
    bad = CliRunner().invoke(app, command, env={"COLUMNS": "120"})
    assert bad.exit_code == 1
    assert "the sum of step 0 and the sum of step 1" in bad.output
    refused = CliRunner().invoke(app, [*command, "--engine", "ray"])
    assert "the attack releases needs all nodes in this process" in " ".join(refused.output.split())
