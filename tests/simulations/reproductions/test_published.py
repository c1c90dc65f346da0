"""Published numbers as data files: every cell has runs or a reason, and says what the paper says."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulations.reproductions.published import load, names, plan
from simulations.reproductions.request import Request
from tests.for_each import for_each

NAMES = names()


@for_each("name", NAMES)
def test_every_cell_of_a_published_table_has_runs_or_a_reason(name: str) -> None:
    table, cells = load(name)
    assert not cells.duplicated(["dataset", "method", "group", "metric"]).any()
    for row in cells.to_dict("records"):
        assert math.isfinite(float(row["published"]))
        assert row["dataset"] in table.datasets
        missing = "missing" in table.datasets[row["dataset"]] or row["method"] in table.missing
        assert missing or row["method"] in table.methods
    for quick in (False, True):
        planned = plan(table, Request(seeds=2, quick=quick))
        labels = [(run.dataset, run.method, run.experiment.seed) for run in planned]
        assert len(set(labels)) == len(labels)
        assert len({str(run.experiment.settings()) for run in planned}) == len(labels)


PAPER = {"Non Private": "SGD", "DPSGD": "DPSGD", "FairLens": "FairLens", "DPSGD-F": "DPSGD-F",
         "DPSGD-G.": "DPSGD-Global", "DPSGD-G.-A.": "DPSGD-Global-Adapt"}


@pytest.fixture
def shared(data_dir: Path) -> Path:
    """Return the folder of the papers, and of tables that others typed from them."""
    if not (data_dir.parent / "reference").is_dir():
        pytest.skip("no reference tables beside the data files")
    return data_dir.parent


def test_the_published_numbers_are_those_of_the_reference_files(shared: Path) -> None:
    """The reference files were typed from the papers by others: both must agree."""
    found = {float(value.replace("NA", "nan") or "nan") for name in (
        "yang2024_table1", "xu2021_table1", "xu2021_table2_loss_gradnorm", "xu2021_table3_mnist_clipping",
        "xu2020_table3_mnist", "xu2020_table5_census", "esipova2023_table1_direction_magnitude",
        "esipova2023_tables2_to_5") for row in csv.DictReader((shared / "reference" / f"{name}.csv").open())
        for column, value in row.items()
        if column not in ("dataset", "method", "group", "group_a", "group_b", "balance", "error")}
    ours = {float(value) for name in NAMES if name != "xu2020-table2" for value in load(name)[1]["published"]}
    assert ours <= found
    spreads = {float(value) for name in NAMES for value in load(name)[1]["spread"] if value}
    sizes = {54649.0, 60000.0, 5958.0, 5851.0, 500.0, 45222.0, 30527.0, 14695.0, 60420.0, 30273.0, 30147.0, 28000.0,
             14000.0, 40000.0, 30000.0, 10000.0}
    unused = {value for value in found - ours - spreads if not math.isnan(value)} - sizes
    assert unused <= {1.0, 2.0, 3.0, 4.0, 5.0}


def test_the_numbers_of_xus_unbalanced_dutch_data_are_those_of_the_papers_text(shared: Path) -> None:
    """Twelve numbers a line: loss, then norm, of MNIST, Adult and Dutch. The others are in Table 2 of 2021, too."""
    lines = (shared / "papers" / "xu2020_dpsgd_f_report.txt").read_text().splitlines()
    end = next(place for place, line in enumerate(lines) if line.startswith("Table 2: The average loss"))
    printed = {words[0]: words[1:] for words in map(str.split, lines[end - 7:end]) if len(words) == 13}
    assert [len(numbers) for numbers in printed.values()] == [12, 12, 12, 12]
    columns = {("M", "train_loss"): 4, ("F", "train_loss"): 5, ("M", "train_gradient_norm"): 10,
               ("F", "train_gradient_norm"): 11}
    _, cells = load("xu2020-table2")
    for cell in cells.to_dict("records"):
        name = "Nai\u0308ve" if cell["method"] == "Naive" else cell["method"]
        found = [numbers for method, numbers in printed.items() if method.replace("\u0131", "i") == name]
        assert found[0][columns[cell["group"], cell["metric"]]] == cell["published"]
    _, later = load("xu2021-table2")
    everything = {value for numbers in printed.values() for value in numbers}
    assert {*later[later["dataset"] != "Dutch"]["published"], *cells["published"]} == everything
    assert len(cells) == 16


RESULTS = sorted((Path(__file__).resolve().parents[3] / "docs" / "results").glob("*/cells.csv"))


@for_each("cells", RESULTS)
def test_every_disagreement_in_the_results_has_a_line_that_explains_it(cells: Path) -> None:
    rows = list(csv.DictReader(cells.open()))
    assert {row["agrees"] for row in rows} <= {"yes", "no", "not run"}
    assert [row for row in rows if row["agrees"] == "no" and not row["note"]] == []
    page = (cells.parent / "README.md").read_text()
    assert all(row["note"] in page for row in rows if row["agrees"] == "no")
    assert "not explained" not in page.lower()


@pytest.mark.parametrize(("number", "groups"), [(2, "28"), (3, ["without eyeglasses", "with eyeglasses"]), (4, "MF"),
                                                (5, "MF")])
def test_every_number_of_esipovas_tables_and_its_error_are_those_of_the_papers_text(number: int, groups: Sequence[str],
                                                                                   shared: Path) -> None:
    lines = (shared / "papers" / "esipova2023_gradient_misalignment.txt").read_text().splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(f"Table {number}:"))
    _, cells = load(f"esipova2023-table{number}")
    keys = cells.set_index(["method", "group", "metric"])
    read = 0
    for line in itertools.takewhile(lambda line: line.startswith(tuple(PAPER)), lines[start + 2:]):
        printed = max((name for name in PAPER if line.startswith(name)), key=len)
        order = [(group, metric) for metric in ("accuracy", "privacy_cost") for group in groups]
        order += [("gap", "privacy_cost_gap"), *((group, metric) for metric in ("loss", "excessive_risk")
                                                 for group in groups), ("gap", "excessive_risk_gap")]
        order = [key for key in order if printed != "Non Private" or key[1] in ("accuracy", "loss")]
        numbers = re.findall(r"(-?\d+\.\d+)±(\d+?\.\d+?)plus-or-minus", line[len(printed):])
        for (group, metric), (glued, error) in zip(order, numbers, strict=True):
            ours = keys.loc[(PAPER[printed], group, metric)]
            assert glued.endswith(ours["published"].removeprefix("-"))  # the text has the number several times over
            assert ours["spread"] == error
            read += 1
    assert read == (cells["metric"] != "epsilon").sum()


@pytest.mark.parametrize(("dataset", "features"), [("Adult", 98), ("Dutch", 60), ("Bank", 46), ("Credit", 90),
                                                   ("Compas", 13), ("Law", 20)])
def test_yangs_records_and_features_are_those_of_the_authors_code(dataset: str, features: int, data_dir: Path) -> None:
    """Counted by hand in their preprocessing: an attribute with two values is one feature."""
    planned = plan(load("yang2024-table1")[0], Request(seeds=1, datasets=(dataset,)))
    sizes = {}
    for run in planned:
        parts = run.experiment.task.data()
        assert parts.train.x.shape[1] == features
        records = [len(part.y) for part in (parts.train, parts.valid, parts.test)]
        sizes[run.method] = [round(number / sum(records), 2) for number in records]
    assert sizes.pop("GS-DP-SGD-TO") == [0.72, 0.08, 0.2]
    assert list(sizes.values()) == [[0.8, 0.0, 0.2]] * 5
