"""`fedfair predict`: a saved model and a file of new rows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from simulations import Experiment, run
from simulations.cli import app
from simulations.plans.compare import compare, experiments
from simulations.results.classifier import TrainedClassifier, predict
from simulations.results.result import save_comparison

SHORT: dict[str, Any] = {"model": "logistic", "epochs": 4, "batch_size": 64, "learning_rate": 0.5, "strategy": "sgd"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a file of people, people.csv, and runs on it: plain, and with a threshold by two attributes."""
    folder, draws = tmp_path_factory.mktemp("predict"), np.random.default_rng(0)
    sex, years, rank = draws.choice(["f", "m"], 500), draws.integers(0, 30, 500), draws.integers(1, 3, 500)
    answer = np.where(years + 6 * (sex == "m") + draws.normal(0, 4, 500) > 17, "approved", "denied")
    file = folder / "people.csv"
    pd.DataFrame({"years": years, "sex": sex, "rank": rank, "answer": answer}).to_csv(file, index=False)
    given = {"csv": str(file), "label": "answer", **SHORT}
    run(Experiment(**given, group="sex", attribute_in_model=True)).save(folder / "plain")
    run(Experiment(**given, group="sex, rank", threshold="by-group", favourable="approved")).save(folder / "threshold")
    return folder


def said(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


@pytest.mark.parametrize("name", ["plain", "threshold"])
def test_rows_are_predicted_as_the_run_decided(folder: Path, name: str) -> None:
    whole = pd.read_csv(folder / "people.csv")
    shown = said(folder / name, folder / "people.csv")
    assert shown.exit_code == 0, shown.output
    found = pd.read_csv(io.StringIO(shown.stdout))
    pd.testing.assert_frame_equal(found[list(whole)], whole)
    assert np.allclose(found["P(approved)"] + found["P(denied)"], 1)
    by_model = np.where(found["P(approved)"] > 0.5, "approved", "denied")
    assert ((found["predicted"] == by_model).all()) == (name == "plain")
    metrics = pd.read_parquet(folder / name / "metrics.parquet").query("round == round.max() and metric == 'accuracy'")
    accuracies = metrics[metrics["split"].isin(["train", "valid", "test"]) & (metrics["group"] == "all")]["value"]
    right = (found["predicted"] == found["answer"]).mean()
    parts = Experiment(csv=str(folder / "people.csv"), label="answer", group="sex", **SHORT).task.data()
    assert right == pytest.approx(np.average(accuracies, weights=[len(part) for _, part in parts]), abs=1e-9)


def test_a_run_of_a_comparison_is_named(folder: Path) -> None:
    given = {"csv": str(folder / "people.csv"), "label": "answer", "group": "sex", "attribute_in_model": True, **SHORT}
    results = compare(experiments(["sgd"], [0, 1], None, {name: given[name] for name in given if name != "strategy"}))
    save_comparison(results, {"strategies": ["sgd"]}, folder / "two")
    shown = said(folder / "two", folder / "people.csv", "--run", "sgd/seed-0")
    assert shown.stdout == said(folder / "plain", folder / "people.csv").stdout
    assert said(folder / "two", folder / "people.csv", "--run", "sgd/seed-1").stdout != shown.stdout
    missing = said(folder / "two", folder / "people.csv")
    assert missing.exit_code == 2
    assert "choose one with run, out of sgd/seed-0, sgd/seed-1" in missing.output


def test_what_is_written_is_what_is_printed(folder: Path, tmp_path: Path) -> None:
    shown = said(folder / "plain", folder / "people.csv", "--out", tmp_path / "new" / "predicted.csv")
    assert shown.stdout == f"saved in {tmp_path / 'new' / 'predicted.csv'}\n"
    assert (tmp_path / "new" / "predicted.csv").read_text() == said(folder / "plain", folder / "people.csv").stdout


def test_the_group_may_stand_in_another_column(folder: Path, tmp_path: Path) -> None:
    whole = pd.read_csv(folder / "people.csv")
    whole.assign(gender=whole["sex"], level=whole["rank"].astype(float)).to_csv(tmp_path / "other.csv", index=False)
    plain = said(folder / "threshold", folder / "people.csv")
    other = said(folder / "threshold", tmp_path / "other.csv", "--group", "gender,level")
    predicted = [pd.read_csv(io.StringIO(each.stdout))["predicted"] for each in (plain, other)]
    assert predicted[0].equals(predicted[1])
    whole.assign(gender="f", level=1).to_csv(tmp_path / "one.csv", index=False)
    one = pd.read_csv(io.StringIO(said(folder / "threshold", tmp_path / "one.csv", "--group", "gender,level").stdout))
    assert not one["predicted"].equals(predicted[0])


@pytest.mark.parametrize(("name", "change", "message"), [
    ("plain", {"years": None}, "the rows have no column 'years'"),
    ("plain", {"sex": "x"}, "unknown category of column 'sex', in row 1, 'x': known are f, m"),
    ("threshold", {"rank": 7}, "& 7': did you mean"),
    ("plain", {"predicted": 1}, "the rows have a column 'predicted' already: give it another name"),
    ("threshold", {"P(denied)": 1}, "the rows have a column 'P(denied)' already")])
def test_rows_that_cannot_be_predicted_are_refused_in_a_sentence(folder: Path, tmp_path: Path, name: str,
                                                                 change: dict[str, Any], message: str) -> None:
    rows = pd.read_csv(folder / "people.csv").assign(**change).dropna(axis=1)
    rows.to_csv(tmp_path / "new.csv", index=False)
    shown = said(folder / name, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert shown.exit_code == 2
    assert message in shown.output
    assert not (tmp_path / "out.csv").exists()


def test_images_are_no_rows_of_a_table(folder: Path, tmp_path: Path) -> None:
    run(Experiment(strategy="sgd", hidden=(4,), steps=1)).save(tmp_path / "digits")
    shown = said(tmp_path / "digits", folder / "people.csv")
    assert (shown.exit_code, "was trained on records that are not rows of a table" in shown.output) == (2, True)


def test_a_run_on_other_data_does_not_know_the_column_of_the_group(data_dir: Path, tmp_path: Path) -> None:
    run(Experiment(dataset="compas", **SHORT | {"epochs": 1}, threshold="toc")).save(tmp_path / "compas")
    shown = said(tmp_path / "compas", data_dir / "compas-scores-two-years.csv")
    assert (shown.exit_code, "pass --group COLUMN" in shown.output) == (2, True)


def test_tables_of_polars_and_arrow_are_predicted_as_those_of_pandas(folder: Path) -> None:
    rows = pd.read_csv(folder / "people.csv").head(20)
    for run_of in ("plain", "threshold"):
        expected = predict(folder / run_of, rows)["predicted"].tolist()
        polars = pytest.importorskip("polars")
        for table in (polars.from_pandas(rows), pa.Table.from_pandas(rows, preserve_index=False)):
            assert predict(folder / run_of, table)["predicted"].tolist() == expected
            classifier = TrainedClassifier.load(folder / run_of)
            assert [classifier.labels[number] for number in classifier.predict(table)] == expected


@pytest.mark.parametrize("pattern", ["", "*/*.csv"])
def test_files_of_a_folder_or_a_pattern_are_predicted_as_one_with_the_names_of_folders(folder: Path, pattern: str,
                                                                                       tmp_path: Path) -> None:
    whole = pd.read_csv(folder / "people.csv").sort_values("sex", kind="stable").reset_index(drop=True)
    for sex, part in whole.groupby("sex"):
        (tmp_path / f"sex={sex}").mkdir()
        part.drop(columns="sex").to_csv(tmp_path / f"sex={sex}" / "part.csv", index=False)
    shown = said(folder / "plain", tmp_path / pattern)
    assert shown.exit_code == 0, shown.output
    found = pd.read_csv(io.StringIO(shown.stdout))
    expected = predict(folder / "plain", whole)
    assert (found["sex"].tolist(), found["predicted"].tolist()) == (whole["sex"].tolist(),
                                                                    expected["predicted"].tolist())
    (tmp_path / "sex=m" / "part.csv").write_text("rank\n1\n")
    refused = said(folder / "plain", tmp_path / pattern)
    assert refused.exit_code == 2
    assert "have no column 'years'" in refused.stderr
