"""`mode = "deployment"`: what one word sets, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulations import Experiment, run
from simulations.engines.engines import Local
from simulations.settings.experiment import SettingsError
from tests.fedfair.datasets.test_node_table import SCHEMA, table
from tests.for_each import for_each

SOURCE = {"ranges": {"age": [18, 80]}, "categories": {"job": ["clerk", "cook", "nurse"], "sex": ["f", "m"],
                                                      "ill": ["no", "yes"]},
          "known_from": "a code book", "label": "ill", "group": "sex", "partition": "nodes"}


def deployment(**settings: Any) -> Experiment:
    return Experiment(**{"mode": "deployment", "model": "logistic", **SOURCE, **settings})


def test_one_word_sets_them_all() -> None:
    made = deployment()
    assert (made.randomness, made.trust.value, made.noise, made.dtype) == ("system", "local", "discrete", "float64")
    assert (made.figures, made.attribute_in_model, made.task.prepares) == ("none", False, "public")
    assert deployment(trust="distributed", figures="held-out").trust.value == "distributed"
    assert Experiment().mode == "simulation"
    assert Experiment(**made.settings()) == made


@for_each(("settings", "said"), [
    ({"randomness": "seeded"}, "randomness is 'seeded': it can be 'system' there"),
    ({"trust": "central"}, "trust is 'central': it can be 'local' or 'distributed' there"),
    ({"noise": "gaussian"}, "noise is 'gaussian': it can be 'discrete' there"),
    ({"figures": "exact"}, "figures is 'exact': it can be 'none' or 'private' or 'held-out' there"),
    ({"attribute_in_model": True}, "attribute_in_model is true: it can be false there"),
    ({"preprocessing": "records"}, "preprocessing"),
    ({"known_from": "records"}, "ranges and categories come from the records"),
    ({"threshold": "toc"}, "threshold is 'toc', which is searched for without noise: give threshold_epsilon")])
def test_what_makes_it_none_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        deployment(**settings)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "study.toml").write_text(SCHEMA)
    for number in range(3):
        table(100, number).to_csv(tmp_path / f"node{number}.csv", index=False)
    return tuple(str(tmp_path / f"node{number}.csv") for number in range(3))


@pytest.mark.parametrize("settings", [
    {"strategy": "dpsgd-f", "batch_size": 60, "steps": 2},
    {"strategy": "dpsgd", "batch_size": 20, "steps": 1, "sync": "epoch"},
    {"strategy": "moments", "batch_size": 60, "model": "linear", "features": "binned", "trust": "distributed"}])
def test_a_deployment_is_proved_and_measures_nothing(settings: dict[str, Any], files: tuple[str, ...],
                                                     tmp_path: Path) -> None:
    result = run(deployment(**settings), Local(files=files))
    assert result.ledger.guarantee == "proved"
    assert result.ledger.unprotected == {}
    assert result.group_sizes["f"] + result.group_sizes["m"] == 219
    saved = json.loads((result.save(tmp_path / "out") / "ledger.json").read_text())
    assert not any(saved["cannot_be_published_because"].values())
    assert any("nodes run this program" in line for line in saved["left_to_trust"])
    test = result.metrics[result.metrics.split == "test"]
    assert len(test)
    assert test.value.isna().all()


def test_a_method_without_noise_is_refused_before_it_trains(files: tuple[str, ...]) -> None:
    for settings in ({"strategy": "sgd"}, {"strategy": "dpsgd", "noise_multiplier": 0.0}):
        with pytest.raises(ValueError, match="adds no noise here"):
            run(deployment(batch_size=60, steps=1, **settings), Local(files=files))


def test_a_choice_by_figures_needs_figures(files: tuple[str, ...]) -> None:
    made = deployment(strategy="moments", model="linear", features="binned", batch_size=60, options={"gap": 0.1})
    with pytest.raises(ValueError, match=r'options\.gap is 0\.1, .* but figures is "none"'):
        run(made, Local(files=files))
