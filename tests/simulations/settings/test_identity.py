"""What was saved belongs to the same experiment after a field with a default was added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import run
from simulations.plans.curves import curves
from simulations.plans.kept_runs import trial_name
from simulations.plans.sweep import Sweep, prepare_folder, trials
from simulations.results.result_folder import refuse_other
from simulations.settings.experiment import Experiment, identity_of
from tests.simulations.watched_runs import forbid_runs

SMALL: dict[str, Any] = {"strategy": "sgd", "steps": 2, "hidden": (4,), "batch_size": 32}
AddField = Callable[[], None]


def test_the_identity_is_what_differs_from_the_defaults() -> None:
    named = {"dataset": "digits", "seed": 0, "strategy": "dpsgd"}
    assert Experiment().identity() == named
    assert Experiment(epochs=20.0, pixels=[0, 1], trust="central", split=[0.7, 0.1, 0.2]).identity() == named
    made = Experiment(trust="local", hidden=(8,), ranges={"age": [0, 1]}, options={}).identity()
    assert made == {**named, "hidden": [8], "ranges": [["age", 0.0, 1.0]], "trust": "local"}
    assert list(made) == sorted(made)
    assert Experiment(strategy="dpsgd-p").identity() == {**named, "strategy": "dpsgd-p", "threshold": "roc"}


def test_settings_that_differ_are_another_identity() -> None:
    changes: list[dict[str, Any]] = [{}, {"seed": 1}, {"strategy": "sgd"}, {"dataset": "dutch"}, {"steps": 1},
                                     {"options": {"x": 1}}, {"learning_rate": 0.02}]
    described = [identity_of({**Experiment().settings(), **change}) for change in changes]
    assert all(described.count(each) == 1 for each in described)


def test_settings_saved_with_another_default_stay_what_they_were() -> None:
    """A config.toml holds all settings, so a default that has changed since is told from today's."""
    assert identity_of({**Experiment().settings(), "clip_norm": 0.4}) != Experiment().identity()


def test_a_saved_result_is_recognised_when_a_field_is_added(tmp_path: Path, add_field: AddField) -> None:
    run(Experiment(**SMALL)).save(tmp_path / "out")
    add_field()
    again = Experiment(**SMALL)
    assert again.settings()["patience"] == 3
    refuse_other(tmp_path / "out", again.settings())
    with pytest.raises(FileExistsError, match="holds a different experiment"):
        refuse_other(tmp_path / "out", Experiment(**SMALL, patience=4).settings())
    with pytest.raises(FileExistsError, match="holds a different experiment"):
        refuse_other(tmp_path / "out", Experiment(**{**SMALL, "steps": 3}).settings())


def test_a_checkpoint_is_recognised_when_a_field_is_added(tmp_path: Path, add_field: AddField) -> None:
    Checkpoint(tmp_path / "run", Experiment(**SMALL).settings()).write(1, {"value": 2})
    add_field()
    assert Checkpoint(tmp_path / "run", Experiment(**SMALL).settings()).read() == (1, {"value": 2})
    with pytest.raises(FileExistsError, match="holds a different experiment"):
        Checkpoint(tmp_path / "run", Experiment(**SMALL, patience=4).settings()).read()


def test_a_sweep_is_recognised_when_a_field_is_added(tmp_path: Path, add_field: AddField) -> None:
    sweep = Sweep(strategies=["sgd", "dpsgd"], seeds=2, settings={"steps": 2})
    names = list(trials(sweep))
    prepare_folder(tmp_path / "sweep", sweep)
    add_field()
    assert list(trials(sweep)) == names
    assert prepare_folder(tmp_path / "sweep", sweep) == 0
    assert prepare_folder(tmp_path / "sweep", sweep.model_copy(update={"seeds": (0, 1, 2)})) == len(names)
    assert trial_name(Experiment(patience=4)) != trial_name(Experiment())


def test_points_of_a_curve_are_recognised_when_a_field_is_added(
        tmp_path: Path, add_field: AddField, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {name: value for name, value in SMALL.items() if name != "strategy"}
    first = curves(["sgd"], [0], None, settings, {}, kept=tmp_path / "runs")
    add_field()
    forbid_runs(monkeypatch, "a point is measured again")
    assert curves(["sgd"], [0], None, settings, {}, kept=tmp_path / "runs").equals(first)


def test_a_folder_that_is_not_toml_is_another_experiment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("seed = ")
    with pytest.raises(FileExistsError, match="holds a different experiment"):
        refuse_other(tmp_path, Experiment().settings())


def test_a_comparison_is_compared_by_all_of_its_description(tmp_path: Path) -> None:
    described = {"strategies": ["sgd", "dpsgd"], "seeds": [0], "settings": {"epochs": 20}}
    (tmp_path / "config.toml").write_text(tomli_w.dumps(described))
    refuse_other(tmp_path, described)
    for change in ({"seeds": [0, 1]}, {"settings": {}}, {"preset": "yang2024"}):
        with pytest.raises(FileExistsError, match="holds a different experiment"):
            refuse_other(tmp_path, {**described, **change})
