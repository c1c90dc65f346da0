"""A small comparison and a small sweep, as their commands leave them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from simulations.engines.run import run
from simulations.plans.compare import compare, experiments
from simulations.plans.sweep import Sweep, collect, prepare_folder, trials
from simulations.results.result import save_comparison

QUICK = {"hidden": [8], "epochs": 2, "batch_size": 128, "delta": 1e-4, "eval_every": 1}


def saved_comparison(folder: Path, strategies: Sequence[str], seeds: int, **settings: object) -> Path:
    """Return a folder as `fedfair compare` leaves it."""
    given = {**QUICK, **settings}
    results = compare(experiments(strategies, list(range(seeds)), None, given))
    described = {"strategies": list(strategies), "seeds": list(range(seeds)), "settings": given}
    return save_comparison(results, described, folder)


@pytest.fixture(scope="package")
def comparison_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_comparison(tmp_path_factory.mktemp("report") / "digits", ["sgd", "dpsgd", "dpsgd-f"], 3,
                            imbalance="8:40")


@pytest.fixture(scope="package")
def people_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a comparison on a file of two groups, one of them with a name that is dangerous in a page."""
    file = tmp_path_factory.mktemp("data") / "people.csv"
    rows = [f"{i % 7},{i % 2},{'<b>a & b</b>' if i % 3 else 'c'}" for i in range(90)]
    file.write_text("\n".join(["x,hired,<script>alert(1)</script>", *rows]) + "\n")
    return saved_comparison(tmp_path_factory.mktemp("report") / "people", ["sgd", "dpsgd-f"], 1, csv=str(file),
                            label="hired", group="<script>alert(1)</script>", batch_size=16)


@pytest.fixture(scope="package")
def sweep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as `fedfair sweep` leaves it when one of its trials has failed."""
    folder = tmp_path_factory.mktemp("report") / "sweep"
    sweep = Sweep(strategies=("dpsgd", "dpsgd-f"), seeds=1, settings={**QUICK, "epochs": 1},
                  vary={"target_epsilon": [2.0, 8.0]})
    prepare_folder(folder, sweep)
    *made, (failed, _) = trials(sweep).items()
    for name, experiment in made:
        run(experiment).save(folder / "trials" / name)
    collect(sweep, folder, {failed: "out of memory"})
    return folder
