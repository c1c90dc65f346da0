"""Every kind of addition that CONTRIBUTING.md describes is made here, from the lines that it shows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedfair.accounting import ACCOUNTANTS
from fedfair.datasets import DATASETS
from fedfair.fairness.metrics import METRICS, Metric
from simulations import Experiment, Result, cli, run
from simulations.engines.engines import make_engine
from simulations.report import write_report
from simulations.reproductions.tables import reproduce
from simulations.results.result import compared
from simulations.results.terminal_table import results_table
from simulations.settings.catalogue import settings_of

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = dict(re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```$', (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S))
QUICK: dict[str, Any] = {"hidden": (4,), "steps": 3, "batch_size": 32, "split": (0.3, 0.0, 0.7), "eval_every": 100}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the files of CONTRIBUTING.md into a folder of the user's, from which a program is started."""
    for name, text in BLOCKS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget afterwards what a test enters."""
    kept = [(entries, dict(entries)) for entries in (DATASETS._values, ACCOUNTANTS._values, METRICS)]
    yield
    for entries, before in kept:
        entries.clear()
        entries.update(before)


def executed(name: str) -> dict[str, Any]:
    """Run a file of CONTRIBUTING.md as a script."""
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(BLOCKS[name], name, "exec"), names)  # noqa: S102 - our own document
    return names


def trained(strategy: str, **settings: Any) -> Result:
    """Return a short run of a strategy."""
    return run(Experiment(**{**QUICK, "strategy": strategy, **settings}))


def test_every_kind_of_addition_has_an_example() -> None:
    rows = re.findall(r"^\| an? ([a-z ]+) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert rows == ["method", "clip rule", "count query", "exchange", "data set", "model", "accountant", "metric",
                    "reproduction", "setting", "command"]
    assert len(BLOCKS) == 11


def test_a_method(folder: Path) -> None:
    assert trained("half-clip").ledger.guarantee == "simulated"
    assert trained("half-clip", randomness="system").ledger.guarantee == "proved"


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_clip_rule_and_a_count_query(folder: Path, nodes: int) -> None:
    result = run(Experiment(**QUICK, strategy="soft-clip"), make_engine("local", nodes))
    assert next(iter(result.ledger.events)).count_multiplier == 10.0
    rule = result.metrics[result.metrics["split"] == "rule"]
    assert rule["metric"].unique().tolist() == ["clip_norm"]


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize(("engine", "strategy"), [("ray", "soft-clip"), ("flower", "twice")])
def test_rules_queries_and_exchanges_of_the_users_own_travel_on_every_engine(
        folder: Path, engine: str, strategy: str) -> None:
    experiment = Experiment(**QUICK, strategy=strategy)
    there, here = run(experiment, engine, nodes=2), run(experiment)
    assert there.ledger.events == here.ledger.events
    for name, value in here.model.state_dict().items():
        assert there.model.state_dict()[name] == pytest.approx(value, abs=1e-5)


def test_an_exchange(folder: Path) -> None:
    assert trained("twice").ledger.events == trained("dpsgd").ledger.events
    (folder / "strategies" / "twice_sums.py").unlink()
    (folder / "strategies" / "once.py").write_text(BLOCKS["strategies/twice.py"].replace("Twice", "Once"))
    with pytest.raises(ValueError, match=r"no exchange 'twice_sums\.send_sum_and_clients': put the file"):
        Experiment(**QUICK, strategy="once")


def test_a_data_set(registries: None) -> None:
    executed("coins.py")
    assert set(trained("dpsgd", dataset="coins").metrics["group"]) >= {"even", "odd"}


def test_a_model(folder: Path) -> None:
    assert trained("dpsgd", model="wide").model[1].out_features == 4  # type: ignore[index, union-attr]


def test_an_accountant(registries: None) -> None:
    executed("basic.py")
    basic, pld = (trained("dpsgd", accountant=name).ledger.epsilon() for name in ("basic", "pld"))
    assert basic > pld
    with pytest.raises(ValueError, match="unknown accountant 'basics': did you mean 'basic'"):
        Experiment(accountant="basics")


def test_a_metric(registries: None) -> None:
    executed("error.py")
    rows = trained("sgd").metrics.set_index(["round", "split", "group", "metric"])["value"].unstack("metric")
    assert (rows["error"] + rows["accuracy"]).dropna().unique() == pytest.approx(1)


def test_a_metric_is_in_every_result(registries: None, tmp_path: Path) -> None:
    """Also in a later process, which reports on the folder without the user's file."""
    executed("error.py")
    METRICS["error_parity"] = Metric("error_parity", of="groups", over=("error",))
    result = trained("sgd")
    result.save(tmp_path)
    assert {"error", "error_parity"} <= set(pd.read_parquet(tmp_path / "metrics.parquet")["metric"])
    summary = pd.read_csv(tmp_path / "summary.csv").iloc[0]
    assert summary["error_mean"] == pytest.approx(1 - summary["accuracy_mean"])
    assert summary["error_8_mean"] == pytest.approx(1 - summary["accuracy_8_mean"])
    assert summary["error_parity_mean"] == pytest.approx(summary["accuracy_parity_mean"])
    printed = io.StringIO()
    Console(file=printed, width=120).print(results_table(compared([result])))
    for name in ("error", "error parity"):
        mean = f"{summary[name.replace(' ', '_') + '_mean']:.3f}".lstrip("0")
        assert re.search(rf"^{name} +{re.escape(mean)}", printed.getvalue(), re.M), printed.getvalue()
    for _ in ("with the user's file", "in another process"):
        file, = write_report([tmp_path])
        assert {"error", "error parity"} <= set(re.findall(r"<th[^>]*>(?:<[^>]*>)*([a-z ]+)<", file.read_text()))
        METRICS.pop("error", None), METRICS.pop("error_parity", None)


def test_a_reproduction(folder: Path) -> None:
    (folder / "nobody2026-table1.csv").write_text("dataset,method,group,metric,published,spread\n"
                                                  "Digits,Plain,all,accuracy,50.0,99\n")
    cells = reproduce("nobody2026-table1", folder / "out", folder=folder)
    assert cells["agrees"].tolist() == ["yes"]


def test_a_setting() -> None:
    added = settings_of(executed("settings.py")["WithPatience"])[-1]
    assert (added.name, added.default, added.allowed) == ("patience", "0", "whole number")


def test_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.app, "registered_commands", list(cli.app.registered_commands))
    executed("commands.py")
    assert CliRunner().invoke(cli.app, ["greet", "you"]).output == "hello you\n"
    assert CliRunner().invoke(cli.app, ["greet", ""]).exit_code == 2
