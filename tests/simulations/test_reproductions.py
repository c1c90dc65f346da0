"""Published tables: the data files themselves, what agreement means, and a table of our own from beginning to end."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations.cli import app
from simulations.compare import compare, experiments
from simulations.experiment import Experiment
from simulations.reproductions.cells import compared, half_unit, strategy_name, values
from simulations.reproductions.markdown import report, sentence
from simulations.reproductions.orders import orders
from simulations.reproductions.published import Published, load, names, plan
from simulations.reproductions.store import kept, kept_runs
from simulations.reproductions.tables import reproduce
from simulations.result import identified
from simulations.run import run

NAMES = names()
SETTINGS = {"hidden": [6], "epochs": 1, "imbalance": "", "split": [0.5, 0.0, 0.5], "eval_every": 5}

TOML = """
title = "Nobody 2026, Table 1"
preset = "digits"
seeds = 2
published_seeds = 3
spread = "standard deviation"
percent = ["accuracy"]
orders = ["privacy_cost_gap"]
pair = ["2", "8"]
[datasets]
Digits = { dataset = "digits", hidden = [6], epochs = 1, imbalance = "", eval_every = 5 }
Nowhere = { missing = "it is lost" }
[methods]
Plain = { strategy = "sgd" }
"Private (C = 1)" = { strategy = "dpsgd" }
"Private (C = 2)" = { strategy = "dpsgd", clip_norm = 2.0 }
[quick]
text = "Half an epoch."
seeds = 1
settings = { epochs = 0.5 }
[[notes]]
method = "Private (C = 2)"
text = "We do not know."
"""


def published(**changes: Any) -> Published:
    return Published(**{"title": "t", "preset": "digits", "seeds": 1, "published_seeds": 1, "datasets": {"D": {}},
                        "methods": {"SGD": {"strategy": "sgd"}, "A": {"strategy": "dpsgd"}},
                        "quick": {"text": "q", "seeds": 1}, **changes})


def cell(printed: str, spread: str = "", **changes: str) -> dict[str, str]:
    return {"dataset": "D", "method": "A", "group": "all", "metric": "accuracy", "published": printed,
            "spread": spread, **changes}


def found(*by_seed: float) -> dict[str, pd.DataFrame]:
    index = pd.MultiIndex.from_tuples([("D", "A", seed) for seed in range(len(by_seed))],
                                      names=["dataset", "strategy", "seed"])
    return {"accuracy": pd.DataFrame({"all": list(by_seed)}, index=index)}


def agrees(printed: str, spread: str, *ours: float, **changes: Any) -> str:
    return str(compared(published(**changes), pd.DataFrame([cell(printed, spread)]), found(*ours))["agrees"].item())


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_a_published_table_has_runs_or_a_reason(name: str) -> None:
    table, cells = load(name)
    assert not cells.duplicated(["dataset", "method", "group", "metric"]).any()
    for row in cells.to_dict("records"):
        assert math.isfinite(float(row["published"]))
        assert row["dataset"] in table.datasets
        missing = "missing" in table.datasets[row["dataset"]] or row["method"] in table.missing
        assert missing or row["method"] in table.methods
    for quick in (False, True):
        planned = plan(table, [0, 1], quick, "cpu")
        labels = [(run.dataset, run.method, run.experiment.seed) for run in planned]
        assert len(set(labels)) == len(labels)
        assert len({str(run.experiment.settings()) for run in planned}) == len(labels)


def test_the_published_numbers_are_those_of_the_reference_files(data_dir: Path) -> None:
    """The reference files were typed from the papers by others: both must say the same."""
    reference = data_dir.parent / "reference"
    if not reference.is_dir():
        pytest.skip("no reference tables beside the data files")
    found = {float(value.replace("NA", "nan") or "nan") for name in (
        "yang2024_table1", "xu2021_table1", "xu2021_table2_loss_gradnorm", "xu2021_table3_mnist_clipping",
        "xu2020_table3_mnist", "xu2020_table5_census", "esipova2023_table1_direction_magnitude",
        "esipova2023_tables2_to_5") for row in csv.DictReader((reference / f"{name}.csv").open())
        for column, value in row.items()
        if column not in ("dataset", "method", "group", "group_a", "group_b", "balance", "error")}
    ours = {float(value) for name in NAMES for column in ("published", "spread") for value in load(name)[1][column]
            if value}
    assert ours <= found
    sizes = {54649.0, 60000.0, 5958.0, 5851.0, 500.0, 45222.0, 30527.0, 14695.0, 60420.0, 30273.0, 30147.0, 28000.0,
             14000.0, 40000.0, 30000.0, 10000.0}
    unused = {value for value in found - ours if not math.isnan(value)} - sizes
    assert unused <= {1.0, 2.0, 3.0, 4.0, 5.0}


def test_agreement_is_within_two_published_spreads_and_rounding() -> None:
    assert half_unit("0.80") == 0.005
    assert agrees("0.80", "0.01", 0.834) == "yes"  # 2 (0.01 + 0.005) + 0.005
    assert agrees("0.80", "0.01", 0.836) == "no"
    assert agrees("0.80", "0.01", 0.766) == "yes"
    assert agrees("0.80", "0.01", 0.764) == "no"
    assert agrees("80", "1", 0.834, percent=["accuracy"]) == "yes"
    assert agrees("80", "1", 0.837, percent=["accuracy"]) == "no"


def test_without_a_published_spread_ours_counts() -> None:
    assert agrees("0.80", "", 0.81, 0.83) == "yes"  # mean 0.82, two deviations 0.028
    assert agrees("0.80", "", 0.85, 0.87) == "no"
    assert agrees("0.80", "", 0.804) == "yes"
    assert agrees("0.80", "", 0.806) == "no"


def test_a_cell_that_was_not_run_says_why_and_never_counts_as_agreeing() -> None:
    table = published(datasets={"D": {}, "E": {"missing": "lost"}}, missing={"B": "no such method"})
    rows = [cell("0.8"), cell("0.8", method="B"), cell("0.8", dataset="E"), cell("0.8", group="Z")]
    result = compared(table, pd.DataFrame(rows), found(0.8))
    assert list(result["agrees"]) == ["yes", "not run", "not run", "not run"]
    assert list(result["note"]) == ["", "no such method", "lost", "left out of the quick version"]
    assert sentence(result) == "1 of 1 cells agree. 3 were not run."


def test_a_note_on_the_metric_goes_before_one_on_the_whole_method() -> None:
    table = published(notes=[{"method": "A", "text": "the method"}, {"method": "A", "metric": "accuracy", "text": "it"},
                             {"dataset": "E", "metric": "accuracy", "text": "elsewhere"}])
    assert list(compared(table, pd.DataFrame([cell("0.9")]), found(0.8))["note"]) == ["it"]
    without = published(notes=[{"method": "A", "text": "the method"}])
    assert list(compared(without, pd.DataFrame([cell("0.9")]), found(0.8))["note"]) == ["the method"]


def test_orders_count_only_pairs_that_the_paper_tells_apart() -> None:
    cells = pd.DataFrame([
        {**cell(printed, method=method), "ours": ours, "agrees": "yes"}
        for method, printed, ours in (("A", "0.1", 0.3), ("B", "0.2", 0.1), ("C", "0.2", 0.2), ("E", "0.9", 0.8))])
    order, = orders(cells, ("accuracy",))
    assert (order.pairs, order.same) == (5, 3)
    assert order.turned == (("A", "B"), ("A", "C"))
    assert order.ours == ("B", "C", "A", "E")
    assert orders(cells, ("loss",)) == []


def test_one_method_is_the_reference_though_several_are_plain() -> None:
    published, _ = load("bagdasaryan2019")
    names = {method: strategy_name(published, method) for method in published.methods}
    assert [method for method, name in names.items() if name == "sgd"] == ["SGD"]
    assert len(set(names.values())) == len(names)


def test_values_are_those_of_the_runs() -> None:
    results = compare(experiments(["sgd", "dpsgd"], [0, 1], "digits", {"dataset": "digits", **SETTINGS}))
    metrics = identified(results)
    held = values(metrics, ("2", "8"))
    rows = metrics[metrics["round"] == metrics["round"].max()].set_index(
        ["strategy", "seed", "split", "group", "metric"])["value"]
    for seed in (0, 1):
        def of(strategy: str, group: str, metric: str, split: str = "test", seed: int = seed) -> float:
            return float(rows[strategy, seed, split, group, metric])

        costs = {group: of("sgd", group, "accuracy") - of("dpsgd", group, "accuracy") for group in ("2", "8")}
        risks = {group: of("dpsgd", group, "loss") - of("sgd", group, "loss") for group in ("2", "8")}
        run = ("digits", "dpsgd", seed)
        assert held["privacy_cost"].loc[run, "8"] == pytest.approx(costs["8"])
        assert held["accuracy_change"].loc[run, "8"] == pytest.approx(-costs["8"])
        assert held["privacy_cost_gap"].loc[run, "gap"] == pytest.approx(abs(costs["2"] - costs["8"]))
        assert held["excessive_risk"].loc[run, "2"] == pytest.approx(risks["2"])
        assert held["excessive_risk_gap"].loc[run, "gap"] == pytest.approx(abs(risks["2"] - risks["8"]))
        assert held["train_loss"].loc[run, "8"] == of("dpsgd", "8", "loss", "train")
        assert held["train_gradient_norm"].loc[run, "2"] == of("dpsgd", "2", "gradient_norm", "train")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "nobody2026-table1.toml").write_text(TOML)
    rows = [("Digits", "Plain", "all", "accuracy", "50.0", "40.0"), ("Digits", "Plain", "8", "loss", "99", ""),
            ("Digits", "Private (C = 1)", "gap", "privacy_cost_gap", "0.10", ""),
            ("Digits", "Private (C = 2)", "gap", "privacy_cost_gap", "0.11", ""),
            ("Digits", "Private (C = 2)", "all", "epsilon", "9999", ""),
            ("Nowhere", "Plain", "all", "accuracy", "50.0", "")]
    with (tmp_path / "tables" / "nobody2026-table1.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("dataset", "method", "group", "metric", "published", "spread"), *rows])
    return tmp_path / "tables"


def test_a_table_from_beginning_to_end(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    cells = reproduce("nobody2026-table1", out, folder=folder)
    assert list(cells["agrees"])[:2] == ["yes", "no"]
    assert list(cells["agrees"])[4:] == ["no", "not run"]
    assert {file.name for file in out.iterdir()} == {"cells.csv", "README.md", "config.toml", "runs", "statistics.csv",
                                                     "environment.json"}
    assert len(list((out / "runs").glob("*.parquet"))) == 6
    page = (out / "README.md").read_text()
    for words in ("# Nobody 2026, Table 1", "1 were not run", "Digits Plain loss of 8 (99, ours", "Not explained.",
                  "We do not know.", "## Order of the methods", "| Plain | all | accuracy |"):
        assert words in page
    assert "quick version" not in page
    expected = compare(experiments(["sgd"], [0, 1], "digits", {"dataset": "digits", "hidden": [6], "epochs": 1,
                                                               "imbalance": "", "eval_every": 5}))
    rows = identified(expected).query("split == 'test' and group == 'all' and metric == 'accuracy'")
    last = rows[rows["round"] == rows["round"].max()]["value"]
    assert cells["ours"][0] == pytest.approx(100 * last.mean())
    assert cells["ours_deviation"][0] == pytest.approx(100 * last.std())

    monkeypatch.setattr("simulations.reproductions.store.run", lambda *_, **__: pytest.fail("ran again"))
    again = reproduce("nobody2026-table1", out, folder=folder)
    pd.testing.assert_frame_equal(cells, again)


def test_the_quick_version_says_so(folder: Path, tmp_path: Path) -> None:
    reproduce("nobody2026-table1", tmp_path / "out", quick=True, folder=folder)
    page = (tmp_path / "out" / "README.md").read_text()
    assert "This is the quick version. Half an epoch." in page
    assert "one seed, so without a deviation of ours" in page


def test_a_run_is_kept_by_all_of_its_settings(tmp_path: Path) -> None:
    one, other = experiments(["dpsgd"], [0, 1], "digits", {"dataset": "digits", **SETTINGS})
    first = kept(one, tmp_path)
    assert kept(other, tmp_path).metrics["value"].tolist() != first.metrics["value"].tolist()
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    again = kept(one, tmp_path)
    pd.testing.assert_frame_equal(first.metrics, again.metrics)
    assert again.ledger.epsilon() == first.ledger.epsilon() == run(one).ledger.epsilon()


def test_a_run_that_was_broken_off_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    made = Experiment(strategy="dpsgd-f", split=(0.2, 0.0, 0.8), hidden=(4,), steps=130, batch_size=8, eval_every=20)
    seen: list[int] = []

    def breaking(rounds: int, of: int) -> None:
        seen.append(rounds)
        if rounds == 120 and len(seen) == 120:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(made, tmp_path, breaking)
    again, alone = kept(made, tmp_path, breaking), kept(made, tmp_path / "alone")
    assert seen == [*range(1, 121), *range(101, 131)]
    pd.testing.assert_frame_equal(again.metrics, alone.metrics)
    assert again.ledger.to_dict() == alone.ledger.to_dict()
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.is_file()) == [".json", ".parquet"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["alone"]


@pytest.mark.slow
def test_several_jobs_give_the_same_runs(tmp_path: Path) -> None:
    made = experiments(["sgd", "dpsgd"], [0, 1], "digits", {"dataset": "digits", **SETTINGS})
    alone, together = kept_runs(made, tmp_path / "a"), kept_runs(made, tmp_path / "b", jobs=2)
    for a, b in zip(alone, together, strict=True):
        pd.testing.assert_frame_equal(a.metrics, b.metrics, rtol=1e-4)


def test_equal_runs_do_not_meet_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = experiments(["dpsgd"], [0, 1], "digits", {"dataset": "digits", **SETTINGS})
    begun: list[Experiment] = []
    monkeypatch.setattr("simulations.reproductions.store.in_processes",
                        lambda work, items, jobs: begun.extend(items) or ((n, work(i)) for n, i in enumerate(items)))
    runs = kept_runs([one, other, one], tmp_path, jobs=2)
    assert begun == [one, other]
    pd.testing.assert_frame_equal(runs[0].metrics, runs[2].metrics)


def test_a_wrong_name_and_another_folder_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", "yang2024-table2", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "did you mean 'yang2024-table1'" in result.output
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text('reproduction = "xu2021-table1"\n')
    result = CliRunner().invoke(app, ["reproduce", "yang2024-table1", "--out", str(tmp_path / "other")])
    assert result.exit_code == 2
    assert "different experiment" in result.output


def test_the_page_of_a_table_that_cannot_be_run_claims_nothing() -> None:
    table, cells = load("esipova2023-table3")
    page = report("esipova2023-table3", table, compared(table, cells, {}), [], 5, False, "cpu")
    assert "0 of 0 cells agree. 48 were not run." in page
    assert not set(itertools.chain(*(line.split("|")[-2].split() for line in page.splitlines() if line.startswith("| ")
                                     and "method" not in line))) - {"not", "run"}
