"""The commands about data, and unprepared files, from the file to the table of results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfair.datasets import DATASETS
from fedfair.datasets.schema import read
from fedfair.protocol.task import Task
from simulations.cli import app

SMALL = 30


def people(groups: int, classes: int = 2, rows: int = 420) -> pd.DataFrame:
    """Write a file with every kind of column: the last group has 30 records, the label follows income and town."""
    draws = np.random.default_rng(groups)
    group = np.append(draws.integers(0, groups - 1, rows - SMALL), np.full(SMALL, groups - 1))
    income, town = draws.normal(3000, 700, rows).round(2), draws.choice(["North", "South", "East"], rows)
    score = income / 700 + (town == "North") + draws.normal(0, 0.3, rows)
    return pd.DataFrame({
        "income": [f"{value:,.2f}" for value in income], "town": town, "rooms": draws.integers(1, 5, rows),
        "married": draws.choice(["yes", "no"], rows), "insured": draws.choice([True, False], rows), "country": "NL",
        "group": [f"group {k}" for k in group], "outcome": pd.qcut(score, classes, labels=[*"abc"][:classes])})


def put(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_csv(folder / "people.csv")
    return folder / "people.csv"


def said(*arguments: str, code: int = 0) -> str:
    """Return what a command prints, as one line."""
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return " ".join((result.output if code == 0 else result.stderr).split())


@pytest.mark.parametrize(("groups", "classes"), [(3, 2), (7, 3)])
def test_a_file_that_nobody_prepared_is_compared(groups: int, classes: int, tmp_path: Path) -> None:
    file = put(people(groups, classes), tmp_path)
    shown = said("compare", "--csv", file, "--label", "outcome", "--group", "group", "--strategies", "sgd,dpsgd-f",
                 "--seeds", 1, "--jobs", 1, "--set", "epochs=4", "--set", "batch_size=32", "--set", "hidden=[16]",
                 "--set", "learning_rate=0.5", "--set", "clip_norm=1", "--set", "delta=1e-4", "--out", tmp_path / "out")
    assert "people: test accuracy by group (1 seed)" in shown
    summary = pd.read_csv(tmp_path / "out" / "summary.csv").set_index("strategy")
    assert {f"accuracy_group {k}_mean" for k in range(groups)} <= set(summary)
    assert summary.loc["sgd", "accuracy_mean"] > 1 / classes + 0.15  # the features are there, and in order
    assert summary.loc["dpsgd-f", "guarantee"] == "nominal"  # its categories and scaling come from the file


def test_columns_of_a_file_are_left_out_before_anybody_looks_at_them(tmp_path: Path) -> None:
    frame = people(3)
    file = put(frame.assign(name=[f"p{i}" for i in range(len(frame))],
                            town=lambda f: f["town"].where(f.index % 60 > 0)), tmp_path)
    columns = ("--label", "outcome", "--group", "group")
    assert 'leave it out with without = ["name"]' in said("data", "check", file, *columns, "--missing", "drop", code=2)
    shown = said("data", "check", file, *columns, "--without", "name,town,group")
    assert "420 records, (6,) features, 2 classes" in shown  # income, rooms, and two of married and insured each
    assert "│ name │" not in shown
    assert "│ group │ group │" in shown
    task = Task(csv=str(file), label="outcome", group="group,town", without=("name", "town"), missing="drop")
    assert task.data().train.columns.count("town") == 0
    assert len(task.data().train.names) == 3 * 3


def test_a_file_is_checked_column_by_column(tmp_path: Path) -> None:
    file = put(people(3).assign(town=lambda f: f["town"].where(f.index % 60 > 0)), tmp_path)
    shown = said("data", "check", file, "--label", "outcome", "--group", "group", "--missing", "drop")
    for words in ("income │ number", "town │ category │ 3:", "│ 7 │", "rooms │ number │ 1 to 4", "married │ boolean",
                  "insured │ boolean", "country │ single value, left out │ 1: NL", "group │ group │ 3: group",
                  "outcome │ label │ 2: 0 = a, 1 = b", "Unnamed: 0 │ row number, left out",
                  "413 records, (9,) features, 2 classes"):
        assert words in shown
    kept = said("data", "check", file, "--label", "outcome", "--group", "group")
    assert "The table has missing values in town (7), in 7 of 420 rows. A fit keeps them" in kept
    assert "fedfair compare" not in kept
    for words in (shown, kept):
        assert words.endswith(f"Next: fedfair fit {file} --label outcome --group group --out out/people")


def test_the_fit_that_is_next_has_no_numbers_of_rows_as_a_feature(tmp_path: Path) -> None:
    file = put(people(3).assign(**{"loan id": lambda f: range(1000, 1000 + len(f))}), tmp_path)
    shown = said("data", "check", file, "--label", "outcome", "--group", "group", "--without", "rooms")
    assert "loan id │ row number, left out" in shown
    assert shown.endswith(f"fedfair fit {file} --label outcome --group group --without 'rooms,loan id' "
                          "--out out/people")


def test_declared_numbers_that_are_quantities_are_said_to_a_fit_and_beside_a_schema(tmp_path: Path) -> None:
    """A fit and a run with a schema look at no cell for it: 40 % was no number there, in silence."""
    made = people(3)[["income", "group", "outcome"]]
    made["rate"], made["stay"] = [f"{row % 90} %" for row in made.index], [f"P{row % 9}D" for row in made.index]
    file, asked = put(made, tmp_path), ("--label", "outcome", "--group", "group")
    setting = 'quantities={rate="percentage",stay="duration"}'
    shown = said("data", "check", file, *asked, "--set", 'numbers=["rate"]', "--set", 'quantities={rate="percentage"}')
    assert shown.endswith(f"""--set 'numbers=["rate"]' --set '{setting}' --out out/people""")
    assert "quantities" not in said("data", "check", file, *asked)
    schema = tmp_path / "own.toml"
    said("data", "schema", file, *asked, "--without", "Unnamed: 0", "--out", schema)
    assert f"--set '{setting}'" in schema.read_text()
    settings = ("--set", f"schema_file={schema}", "--set", "steps=1")
    run = ("run", "--csv", file, *asked, "--without", "Unnamed: 0", *settings)
    assert """or give quantities = { rate = "percentage" }""" in said(*run, code=2)
    assert "saved in" in said(*run, "--set", setting, "--out", tmp_path / "out")


def test_a_table_that_has_other_itself_is_asked_about_it_and_gets_a_schema_that_can_be_read(tmp_path: Path) -> None:
    """The schema listed it twice, which no run takes."""
    made, schema = people(3)[["income", "town", "group", "outcome"]], tmp_path / "own.toml"
    asked = (put(made.assign(town=made["town"].replace("East", "other")), tmp_path), "--label", "outcome", "--group",
             "group", "--without", "Unnamed: 0")
    assert "Question: Does 'other' in column 'town' mean all that is not named?" in said("data", "check", *asked)
    said("data", "schema", *asked, "--out", schema)
    assert dict(read(schema).categories)["town"] == ("North", "South", "other")
    assert "mean all that is not named" not in said("data", "check", put(made, tmp_path), *asked[1:])


def test_missing_values_are_dropped_in_a_run_that_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = put(people(3).assign(rooms=lambda f: f["rooms"].where(f.index % 60 > 0)), tmp_path)
    run = ["run", "--csv", file, "--label", "outcome", "--group", "group", "--set", "epochs=0.5", "--set",
           "batch_size=32", "--set", "hidden=[4]"]
    assert "missing values in rooms (7), in 7 of 420 rows" in said(*run, code=2)
    assert "people: test accuracy by group" in said(*run, "--set", "missing=drop")
    assert "left out: rows with missing values in rooms (7), in 7 of 420 rows" in caplog.text
    assert "missing is 'guess': it should be 'refuse', 'drop' or 'keep'" in said(*run, "--set", "missing=guess", code=2)


@pytest.mark.parametrize(("column", "values", "message"), [
    ("name", [f"person {i}" for i in range(420)], "column 'name' has 420 different texts in 420 rows, as names have"),
    ("born", ["1980-01-02", "1990-03-04"] * 210, "column 'born' holds dates, such as 1980-01-02: turn them into")])
def test_a_column_that_is_no_feature_is_refused(column: str, values: list[str], message: str, tmp_path: Path) -> None:
    file = put(people(3).assign(**{column: values}), tmp_path)
    assert message in said("data", "check", file, "--label", "outcome", "--group", "group", code=2)


def test_days_of_a_column_whose_name_has_a_blank_are_refused_with_a_setting_that_is_one(tmp_path: Path) -> None:
    file, columns = tmp_path / "staff.parquet", ("--label", "outcome", "--group", "group")
    people(3).assign(**{"hired on": pd.Timestamp("2020-01-31")}).assign(
        **{"hired on": lambda f: f["hired on"] + pd.to_timedelta(f.index % 50, unit="D")}).to_parquet(file)
    refused = said("data", "check", file, *columns, code=2)
    assert "holds dates, such as 2020-01-31: turn them" in refused
    setting = refused.partition("with quantities = ")[2].partition(", or leave")[0]
    assert setting == '{ "hired on" = "date" }'
    shown = said("data", "check", file, *columns, "--set", f"quantities={setting}")
    assert "hired on │ number │ 2020-01-31 to 2020-03-20" in shown


def test_sites_may_mix_the_groups_differently(tmp_path: Path) -> None:
    file = put(people(3), tmp_path)
    run = ["run", "--csv", file, "--label", "outcome", "--group", "group", "--set", "epochs=0.5", "--set",
           "batch_size=32", "--set", "hidden=[4]", "--set", "clients=4", "--set", "alpha=0.3"]
    assert "people: test accuracy" in said(*run, "--set", "partition=site")
    assert "alpha is 0.3, but partition is 'group': alpha says how sites mix" in said(*run, code=2)


def test_a_data_set_in_hugging_faces_format_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    from datasets import Dataset

    Dataset.from_pandas(people(3)).save_to_disk(tmp_path / "people")
    name = f"hf:{tmp_path / 'people'}"
    assert "420 records, (9,) features, 2 classes" in said("data", "describe", name, "--label", "outcome", "--group",
                                                            "group")
    run = ["run", "--dataset", name, "--label", "outcome", "--set", "epochs=0.5", "--set", "batch_size=32",
           "--set", "hidden=[4]", "--out", tmp_path / "out"]
    assert "test accuracy by group" in said(*run, "--group", "group")
    assert (tmp_path / "out" / "summary.csv").is_file()
    assert "needs the columns that hold label and group" in said(*run, code=2)


def test_every_data_set_is_listed_and_the_embedded_one_described() -> None:
    shown = said("data", "list")
    assert all(name in shown for name in DATASETS)
    assert "digits: 1,797 records, (1, 8, 8) features, 10 classes" in said("data", "describe", "digits")
    assert "digits: 1,797 records, verified" in said("data", "fetch", "digits")
    for command in ("fetch", "describe"):
        assert said("data", command, "adlt", code=2).startswith("Error: unknown data set 'adlt': did you mean 'adult'?")
    assert "label is 'y', but digits has its own" in said("data", "describe", "digits", "--label", "y", code=2)


def test_public_data_sets_are_described(data_dir: Path) -> None:
    shown = said("data", "describe", "compas")
    assert "compas: 5,278 records, (14,) features, 2 classes" in shown
    assert "law: 20,798 records, verified" in said("data", "fetch", "law")


def test_a_schema_is_written_edited_and_makes_a_run_proved(tmp_path: Path) -> None:
    file, schema = put(people(3), tmp_path), tmp_path / "people.schema.toml"
    asked = ("data", "schema", file, "--label", "outcome", "--group", "group", "--without", "Unnamed: 0,country")
    printed = said(*asked, "--out", schema)
    assert "which was looked at" in printed
    assert "read off the records" in said(*asked)
    said(*asked, "--out", schema, code=2)  # what was edited is not overwritten

    def guarantee(out: str) -> str:
        """Return the guarantee of a run with the schema as it stands."""
        said("compare", "--csv", file, "--label", "outcome", "--group", "group", "--strategies", "dpsgd", "--seeds", 1,
             "--jobs", 1, "--set", "steps=3", "--set", "batch_size=32", "--set", "delta=1e-4", "--set",
             f"schema_file={schema}", "--set", "without=['Unnamed: 0','country']", "--set", "randomness=system",
             "--out", tmp_path / out)
        return str(pd.read_csv(tmp_path / out / "summary.csv").set_index("strategy").loc["dpsgd", "guarantee"])

    assert guarantee("as written") == "nominal"
    schema.write_text(schema.read_text().replace('source = "records"', 'source = "the survey\'s code book"'))
    assert guarantee("edited") == "proved"
    ledger = (next((tmp_path / "edited").rglob("ledger.json"))).read_text()
    assert "the survey's code book" in ledger


def test_files_of_one_table_are_looked_at_together(tmp_path: Path) -> None:
    """A spreadsheet made 1 of 01 in one of them; a line that is broken is named with its file."""
    for year, county in ((2024, "0{}"), (2025, "{}")):
        rows = [f"{age},{'fm'[age % 2]},{county.format(age % 3)},{'no' if age % 5 else 'yes'}" for age in range(20, 80)]
        (tmp_path / f"{year}.csv").write_text("\n".join(["age,sex,county,hired", *rows]) + "\n")
    for table in (tmp_path, tmp_path / "*.csv"):
        shown = said("data", "check", table, "--label", "hired", "--group", "sex")
        assert "120 records" in shown
        assert "Question: Column 'county' has" in shown
        assert shown.endswith(f"--out out/{tmp_path.name}")
    with (tmp_path / "2025.csv").open("a") as file:
        file.write("age,sex,county,hired\n")
    shown = said("data", "check", tmp_path, "--label", "hired", "--group", "sex")
    assert "2025.csv: Lines that a fit leaves out" in shown
    assert "120 records" in shown
    (tmp_path / "2023.csv").write_text("age,sex,hired\n1,m,yes\n")
    refused = said("data", "check", tmp_path, "--label", "hired", "--group", "sex", code=2)
    assert "has the columns county, which" in refused


def test_what_gives_label_or_group_away_is_asked_and_no_fit_of_classes_as_groups_is_advised(tmp_path: Path) -> None:
    frame = people(3).assign(refused=lambda frame: (frame["outcome"] == "a").astype(int),
                             initial=lambda frame: frame["group"].str[-1])
    file = put(frame, tmp_path)
    shown = said("data", "check", file, "--label", "outcome", "--group", "group")
    assert "Question: Is column 'refused' known before 'outcome' is?" in shown
    assert "Question: Is column 'initial' the group 'group' in other words?" in shown
    assert "Next: fedfair fit" in shown
    assert "Favourable class of a fit: 'b' of outcome" in shown
    assert "add --favourable a." in shown
    assert "Favourable" not in said("data", "check", file, "--label", "outcome", "--group", "group", "--set",
                                    "favourable=a")
    assert "Next:" not in said("data", "check", file, "--label", "outcome", "--group", "outcome")
    three = put(frame.assign(outcome=["a", "b", "c"] * (len(frame) // 3) + ["a"] * (len(frame) % 3)), tmp_path)
    shown = said("data", "check", three, "--label", "outcome", "--group", "group", "--without", "refused")
    assert "none of the 3 of outcome" in shown
    assert "--favourable NAME" in shown


def test_codes_of_more_digits_than_numbers_have_are_asked_about(tmp_path: Path) -> None:
    """Two of them were one number, without a word."""
    ids = [12345678901234567 + row % 5 for row in range(60)]
    file = put(people(3).head(60).assign(account=ids), tmp_path)
    shown = said("data", "check", file, "--label", "outcome", "--group", "group")
    assert "Question: Are the numbers in column 'account', of 17 digits, codes?" in shown
    assert "Question" not in said("data", "check", file, "--label", "outcome", "--group", "group", "--set",
                                  'categorical=["account"]')
