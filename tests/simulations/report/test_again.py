"""The command that a report prints runs the same experiment."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

from simulations import Experiment, cli
from simulations.commands import running
from simulations.plans.compare import experiments
from simulations.report.head import command
from simulations.results.run_folder import Source
from tests.for_each import for_each

RUNS = [
    ("dpsgd", None, {"clip_norm": 0.7}),
    ("dpsgd-f", None, {}),
    ("dpsgd-f", "xu2021", {"dataset": "adult"}),
    ("dpsgd-f", "yang2024", {"dataset": "adult", "group": "race", "imbalance": "white:10%", "split": [0.8, 0.0, 0.2]}),
    ("dpsgd-global-adapt", "esipova2023", {"dataset": "dutch", "options.tau": 0.5, "trust": "local"}),
    ("gs-dp-sgd-to", "yang2024", {"dataset": "law", "theta": 0.1}),
    ("dpsgd", None, {"csv": "my people.csv", "label": "hired", "group": "sex", "missing": "drop"}),
    ("gs-dp-sgd", None, {"csv": "my people.csv", "label": "hired", "group": "sex", "missing": "drop",
                         "clip_norm": {"f": 0.5, "other sex": 1.0}}),
    ("dpsgd", "esipova2023", {"csv": "dutch.csv", "label": "hired", "group": "sex", "model": "squashed_logistic",
                              "clip_norm": 0.1, "learning_rate": 0.8}),  # as for the data set that is called so
]


@for_each(("strategy", "preset", "settings"), RUNS)
def test_a_runs_command_makes_the_same_experiment(strategy: str, preset: str | None, settings: dict[str, object],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = experiments([strategy], [3], preset, settings)[0]
    made: list[Experiment] = []
    monkeypatch.setattr(running, "_run_one", lambda given, *_: made.append(given))
    words = shlex.split(command(Source(Path("x"), "run", tomli_w.dumps(experiment.settings()), {})))
    result = CliRunner().invoke(cli.app, words[1:])
    assert result.exit_code == 0, result.output
    assert made == [experiment]


def test_a_comparisons_command_makes_the_same_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"dataset": "adult", "epochs": 2, "hidden": [8, 8], "dpsgd-f.options.max_bound": 4.0}
    described = {"strategies": ["sgd", "dpsgd-f"], "seeds": [0, 1], "preset": "yang2024", "settings": settings}
    planned: list[list[Experiment]] = []

    def stop(experiments: list[Experiment], *_: object, **__: object) -> None:
        planned.append(experiments)
        raise ValueError("planned")

    monkeypatch.setattr("simulations.plans.compare.in_parallel", stop)
    words = shlex.split(command(Source(Path("x"), "comparison", tomli_w.dumps(described), {})))
    CliRunner().invoke(cli.app, [word for word in words[1:] if word not in ("--out", "again")])
    assert planned == [experiments(["sgd", "dpsgd-f"], [0, 1], "yang2024", settings)]


def test_a_sweep_is_run_again_from_its_description() -> None:
    assert command(Source(Path("x"), "sweep", "", {})) == "fedfair sweep config.toml --out again"
