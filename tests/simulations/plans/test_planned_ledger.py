"""What a run will have released is known before it starts."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from fedfair.datasets import DATASETS
from simulations import Experiment, run
from simulations.commands.options import names_of
from simulations.commands.running import compare
from simulations.plans.compare import experiments
from simulations.plans.sweep import planned_ledger
from tests.fedfair.datasets.test_hugging_face import pictures


@pytest.mark.parametrize("settings", [
    {"strategy": "sgd"}, {"strategy": "dpsgd", "target_epsilon": 4.0, "noise_multiplier": 1.0}, {"strategy": "dpsgd-f"},
    {"strategy": "dpsgd-f", "steps": 0}, {"strategy": "dpsgd-f", "sync": "epoch"}, {"strategy": "gs-dp-sgd"},
    {"strategy": "dp-fedavg", "threshold": "toc", "favourable": 1, "threshold_epsilon": 2.0},
])
def test_the_planned_ledger_costs_what_the_finished_run_does(settings: dict[str, Any]) -> None:
    experiment = Experiment(**{"steps": 3, "hidden": (8,), "batch_size": 64, "noise_multiplier": 1.3,
                               "accountant": "rdp", **settings})
    planned, ledger = planned_ledger(experiment), run(experiment).ledger
    assert planned.epsilon() == pytest.approx(ledger.epsilon(), rel=1e-12)
    assert planned.held_out_epsilon("valid") == pytest.approx(ledger.held_out_epsilon("valid"), rel=1e-12)


@pytest.fixture
def all_data(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put pictures in CelebA's format beside the real data files: CelebA itself is not on this machine."""
    for file in data_dir.iterdir():
        (tmp_path / file.name).symlink_to(file)
    if not (tmp_path / "celeba").exists():
        from datasets import DatasetDict, concatenate_datasets

        train = concatenate_datasets([pictures(200)] * 2)
        DatasetDict(train=train, valid=pictures(20), test=pictures(20)).save_to_disk(tmp_path / "celeba")
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))


@pytest.mark.parametrize("dataset", list(DATASETS))
@pytest.mark.usefixtures("all_data")
def test_a_comparison_of_any_built_in_data_is_proved_by_default(dataset: str) -> None:
    names = names_of(signature(compare).parameters["strategies"].default)
    made = experiments(names, [0], None, {"dataset": dataset, "randomness": "system"})
    guarantees = {each.strategy: planned_ledger(each).guarantee for each in made}
    assert guarantees == {name: "none" if name == "sgd" else "proved" for name in names}
    assert len(names) > 2
