"""`fedfair node init`: a policy that is one, for a file that is like the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedfair.accounting.odometer import spent
from fedfair.node.exchanges import is_of_fedfair
from fedfair.node.node import ClientError
from fedfair.node.node_ledger import NodeLedger
from fedfair.node.policy import FILE, read_policy
from simulations import Experiment, run
from simulations.engines.engines import Local
from tests.fedfair.datasets.test_node_table import SCHEMA, table
from tests.simulations.commands.test_data import said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(SCHEMA)
    table(300).to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path


def init(*more: str | Path, code: int = 0) -> str:
    return said("node", "init", "patients.csv", "--schema", "study.toml", "--epsilon", "6", *more, code=code)


def deployment(**settings: Any) -> Experiment:
    return Experiment(**{"mode": "deployment", "partition": "nodes", "schema_file": "study.toml", "strategy": "dpsgd-f",
                         "model": "logistic", "batch_size": 40, "steps": 2, **settings})


def test_the_policy_lets_a_deployment_run_and_charges_it(folder: Path) -> None:
    assert "patients.csv is like study.toml, with 300 records" in init("--name", "patients 2026")
    made = read_policy(folder / FILE)
    assert made.exact_exchanges == ()
    assert made.data[0].file == folder / "patients.csv"
    for name in made.exchanges:
        assert is_of_fedfair(name), name
    ledger = run(deployment(), Local()).ledger
    assert ledger.guarantee == "proved"
    released = NodeLedger(folder / "fedfair-node-ledger.jsonl").released("patients 2026")
    assert sum(released.values()) == 2
    assert 0 < spent(released, 1e-6) <= 6


def test_moments_need_the_features_that_were_agreed_on(folder: Path) -> None:
    moments = deployment(strategy="moments", model="linear", features="binned", steps=None, noise_multiplier=2.0)
    init()
    with pytest.raises(ClientError, match="its policy does not list this task"):
        run(moments, Local())
    (folder / FILE).unlink()
    init("--set", "features=binned")
    assert run(moments, Local()).ledger.guarantee == "proved"


def test_private_figures_leave_and_are_charged(folder: Path) -> None:
    init()
    result = run(deployment(figures="private", figures_epsilon=1.0), Local())
    assert result.ledger.guarantee == "proved"
    lines = (folder / "fedfair-node-ledger.jsonl").read_text()
    assert lines.count("private_counts.send_private_counts") == 2
    assert '"exact"' not in lines
    test = result.metrics[(result.metrics.split == "test") & (result.metrics.metric == "accuracy")]
    assert test.value.notna().any()


def test_exact_figures_stay_unless_the_owner_adds_them(folder: Path) -> None:
    init()
    with pytest.raises(ClientError, match="its policy does not list this exchange"):
        run(deployment(figures="held-out"), Local())


def test_a_policy_is_not_written_over_nor_for_another_file(folder: Path) -> None:
    init()
    assert "exists" in init(code=2).lower()
    frame = table(300)
    frame.assign(job=["Zaphod", *frame.job[1:]]).to_csv(folder / "patients.csv", index=False)
    assert "job has values that the schema does not list" in init("--out", "other.toml", code=2)
    table(300).to_csv(folder / "patients.csv", index=False)
    assert "largest_epsilon" in said("node", "init", "patients.csv", "--schema", "study.toml", "--epsilon", "-1",
                                     "--out", "other.toml", code=2)
    assert not (folder / "other.toml").exists()
