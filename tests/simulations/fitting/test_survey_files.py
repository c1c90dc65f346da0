"""A fit, its predictions, the check and nodes read a file of SPSS, Stata or SAS by what it declares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyreadstat
import pytest
from typer.testing import CliRunner

from fedfair.protocol.task import Task
from simulations.cli import app
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.save import save

ROWS = 1500
LABELS = {"sex": {1: "male", 2: "female"}, "rooms": {1: "1", 2: "2", 3: "3 or more"}, "good": {0: "no", 1: "yes"},
          "age": {99: "no answer"}}


def people() -> pd.DataFrame:
    draws = np.random.default_rng(4)
    age, rooms = draws.integers(18, 80, ROWS).astype(float), draws.integers(1, 4, ROWS).astype(float)
    good = (age + 20 * (rooms == 2) + draws.normal(0, 5, ROWS) > 55).astype(float)
    return pd.DataFrame({"age": np.where(draws.random(ROWS) < .05, 99, age), "rooms": rooms,
                         "sex": draws.integers(1, 3, ROWS).astype(float), "good": good})


def put(path: Path) -> Path:
    """Write the people as a program for statistics does, with 99 as an age that was not told."""
    if path.suffix == ".dta":
        frame = people().astype(object)
        frame.loc[frame["age"] == 99, "age"] = "a"
        pyreadstat.write_dta(frame, path, missing_user_values={"age": ["a"]},
                             variable_value_labels={**LABELS, "age": {"a": "no answer"}})
    else:
        pyreadstat.write_sav(people(), path, variable_value_labels=LABELS, missing_ranges={"age": [99]})
    return path


def told() -> pd.DataFrame:
    """Return the people as another format writes them: names in place of codes."""
    return people().assign(**{name: people()[name].map(LABELS[name]) for name in ("sex", "rooms", "good")},
                           age=people()["age"].mask(people()["age"] == 99))


@pytest.mark.parametrize("ending", [".sav", ".dta"])
def test_a_fit_and_new_rows_in_any_format(ending: str, tmp_path: Path) -> None:
    made = fit(Wanted(put(tmp_path / f"people{ending}"), "good", "sex", 30.0))
    assert made.kinds == ("age",)
    train = made.result.data.train
    assert (train.names, train.labels) == (("female", "male"), ("no", "yes"))
    assert {"1", "2", "3 or more"} <= {*train.encoding.categories("rooms")}
    save(made, tmp_path / "out")
    told().drop(columns="good").to_csv(tmp_path / "new.csv", index=False)
    decided = []
    for new in (tmp_path / f"people{ending}", tmp_path / "new.csv"):
        out = tmp_path / "predicted.csv"
        run = CliRunner().invoke(app, ["predict", str(tmp_path / "out"), str(new), "--out", str(out)])
        assert run.exit_code == 0, run.output
        decided.append(pd.read_csv(out)["predicted"].tolist())
    assert decided[0] == decided[1]
    assert np.mean(np.array(decided[0]) == told()["good"].to_numpy()) > .85


def test_a_number_with_one_label_is_one_in_new_rows(tmp_path: Path) -> None:
    frame = people().assign(age=lambda each: each["age"].mask(each["age"] == 99))
    path = tmp_path / "people.sav"
    pyreadstat.write_sav(frame, path, variable_value_labels={**LABELS, "age": {79: "79 and older"}})
    save(fit(Wanted(path, "good", "sex", 30.0, settings={"numbers": ["age"]})), tmp_path / "out")
    run = CliRunner().invoke(app, ["predict", str(tmp_path / "out"), str(path)])
    assert run.exit_code == 0, run.output
    assert "counts as" not in run.output


def test_the_check_and_a_schema_say_what_the_labels_are(tmp_path: Path) -> None:
    path = put(tmp_path / "people.sav")
    asked = [str(path), "--label", "good", "--group", "sex"]
    checked = CliRunner().invoke(app, ["data", "check", *asked])
    assert checked.exit_code == 0, checked.output
    assert "whose value labels are the categories of good, rooms, sex" in " ".join(checked.output.split())
    written = CliRunner().invoke(app, ["data", "schema", *asked]).output
    assert '"3 or more"' in written
    assert "age" in written.partition("[ranges]")[2].partition("[categories]")[0]
    assert "rooms" not in written.partition("[ranges]")[2].partition("[categories]")[0]


def test_a_node_reads_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('source = "the code book"\nlabel = "good"\ngroup = "sex"\n[ranges]\n'
                                         'age = [18, 80]\n[categories]\nrooms = ["1", "2", "3 or more"]\n'
                                         'sex = ["male", "female"]\ngood = ["no", "yes"]\n')
    task = Task(partition="nodes", schema_file=str(tmp_path / "study.toml"), missing="drop")
    told().dropna().to_csv(tmp_path / "people.csv", index=False)
    held = [task.at_node(str(file), 1).data() for file in (put(tmp_path / "people.sav"), tmp_path / "people.csv")]
    sizes = [sum(len(part) for _, part in each) for each in held]
    assert sizes[0] == sizes[1] == int((people()["age"] != 99).sum())
    assert held[0].train.columns == held[1].train.columns
