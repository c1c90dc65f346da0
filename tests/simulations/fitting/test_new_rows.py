"""New rows, however they are written, get the same decisions or the same refusal from every form of a model."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openpyxl
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from simulations.cli import app
from simulations.fitting.classifier import FairPrivateClassifier
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.onnx_model import onnx_model
from simulations.fitting.save import save
from simulations.results.classifier import predict
from tests.for_each import for_each
from tests.simulations.fitting.forms import FALSE, LEARNED, TRUE, by_all, by_command, table, written

ROWS = st.lists(st.tuples(st.sampled_from(["20", "40", "60.0", "80", "1e1", "$70", "", "?"]),
                          st.sampled_from(["1", "2", "3", "1.0", "02", ""]), st.sampled_from([*TRUE, *FALSE]),
                          st.sampled_from(["Oslo", "Bergen", " Oslo ", "NA"])), min_size=1, max_size=8)
PLAIN = {"$70": "70", "02": "2", "1.0": "1", " Oslo ": "Oslo", "60.0": "60", "1e1": "10", "?": "", "NA": ""}


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate],
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=ROWS, separator=st.sampled_from(",;\t|"), mark=st.sampled_from(["", "\ufeff"]), order=st.permutations(
    range(4)))
def test_writings_of_one_row_get_one_decision(fitted: Path, tmp_path: Path, rows: list[tuple[str, ...]],
                                              separator: str, mark: str, order: list[int]) -> None:
    simple = [(PLAIN.get(age, age), PLAIN.get(code, code), str(smoker in TRUE), PLAIN.get(city, city))
              for age, code, smoker, city in rows]
    expected = by_all(fitted, written(tmp_path, [[*LEARNED], *map(list, simple)]))
    assert (expected[0], expected[2]) == (0, "")
    shuffled = [[list(row)[place] for place in order] for row in [tuple(LEARNED), *rows]]
    assert by_all(fitted, written(tmp_path, shuffled, separator, mark)) == expected
    typed = pd.DataFrame(simple, columns=[*LEARNED]).assign(
        age=lambda frame: pd.to_numeric(frame["age"]), code=lambda frame: pd.to_numeric(frame["code"]),
        smoker=lambda frame: frame["smoker"] == "True")
    assert predict(fitted, typed)["predicted"].tolist() == expected[1]


GOOD = ["40", "2", "True", "Oslo"]


@for_each(("cell", "plain"), [(pd.NA, None), (pd.NaT, None), (np.bool_(True), True), (np.int8(1), 1),
                              (np.array([1, 2]), "[1 2]")])
def test_values_of_pandas_and_numpy_are_read_by_the_program_as_by_predict(fitted: Path, cell: Any, plain: Any) -> None:
    read = runpy.run_path(str(fitted / "predict.py"))["read"]
    row = dict(zip(LEARNED, [40, 2, True, "Oslo"], strict=True))
    for name in LEARNED:
        (meant,), said = read([{**row, name: cell}], "missing")
        (expected,), as_said = read([{**row, name: plain}], "missing")
        assert meant == pytest.approx(expected, nan_ok=True)
        assert said == as_said


@for_each(("names", "row", "message"), [
    (["years", "code", "smoker", "city"], GOOD, "the rows have no column 'age'"),
    (["Age", "code", "smoker", "city"], GOOD, "write 'Age' as 'age'"),
    (["age", "code", "smoker"], GOOD[:3], "the rows have no column 'city'"),
    (["age", "code", "smoker", "city", "age"], [*GOOD, "3"], "names column 'age' more than once"),
    (["age", "code", "smoker", "city", "predicted"], [*GOOD, "no"], "have a column 'predicted' already"),
    ([*LEARNED], GOOD[:3], "row 2 of "),
    ([*LEARNED], ["61 years", *GOOD[1:]], "column 'age' has '61 years' in row 2"),
    ([*LEARNED], ["57.157,10", *GOOD[1:]], "column 'age' has '57.157,10' in row 2"),
    ([*LEARNED], ["57,1", *GOOD[1:]], "column 'age' has '57,1' in row 2"),
    ([*LEARNED], ["inf", *GOOD[1:]], "column 'age' has 'inf' in row 2"),
    ([*LEARNED], ["True", *GOOD[1:]], "column 'age' has 'True' in row 2")])
def test_what_cannot_be_read_is_refused_by_all(fitted: Path, tmp_path: Path, names: list[str], row: list[str],
                                               message: str) -> None:
    good = [*GOOD, "3"][:len(names)]
    for separator in ",;":
        code, rows, said = by_all(fitted, written(tmp_path, [names, good, row], separator))
        assert (code, rows) == (2, [])
        assert message in said
    if len(row) == len(names) == len({*names}) and "predicted" not in names:
        with pytest.raises(ValueError, match=r"column 'age'|the rows have no column"):
            predict(fitted, pd.DataFrame([good, row], columns=names))


def test_what_cannot_be_read_counts_as_missing_if_that_is_asked(fitted: Path, tmp_path: Path) -> None:
    strange = written(tmp_path, [[*LEARNED], GOOD, ["61 years", *GOOD[1:]], ["many", *GOOD[1:]]])
    code, rows, said = by_all(fitted, strange, "--unreadable", "missing")
    assert (code, said) == (0, "2 of 3 values of 'age' are no numbers and count as missing: '61 years', 'many'\n")
    assert rows == by_all(fitted, written(tmp_path, [[*LEARNED], GOOD, *[["", *GOOD[1:]]] * 2]))[1]


def test_a_row_without_any_value_is_not_decided_in_silence(fitted: Path, tmp_path: Path) -> None:
    """As spreadsheets write below a table, and as a line of JSON is that is none."""
    said = "2 of 4 rows have none of the values that the model needs, or cannot be read, and are decided as one of " \
           "which all values are missing: row 2, 4\n"
    rows = written(tmp_path, [[*LEARNED], GOOD, [""] * 4, ["", *GOOD[1:]], ["unknown", "NA", "", "?"]])
    assert (by_all(fitted, rows)[0], by_all(fitted, rows)[2]) == (0, said)
    record = json.dumps(dict(zip(LEARNED, GOOD, strict=True)))
    (tmp_path / "new.jsonl").write_text(f"{record}\n{{oops\n{record}\n{{}}\n")
    assert by_command(fitted, tmp_path / "new.jsonl")[2] == said


def test_a_category_that_the_model_does_not_know_is_said(fitted: Path, tmp_path: Path) -> None:
    code, _, said = by_all(fitted, written(tmp_path, [[*LEARNED], GOOD, [*GOOD[:3], "Rome"], [*GOOD[:3], "OSLO"],
                                                      [*GOOD[:2], "maybe", "Oslo"], ["40", "17", *GOOD[2:]],
                                                      ["40", "\u0661", *GOOD[2:]], ["40", "0_1", *GOOD[2:]]]))
    assert code == 0
    for words in ("2 of 7 values of 'city' are none of the categories", "count as 'other': 'Rome', 'OSLO'",
                  "1 of 7 values of 'smoker' is none", "'maybe'", "3 of 7 values of 'code' are none", "'17', '\u0661'"):
        assert words in said


def test_onnx_knows_the_usual_writings(fitted: Path) -> None:
    session = onnxruntime.InferenceSession(onnx_model(Story.read(fitted)))
    rows = [("40", code, smoker, "Oslo") for code in ("1", "1.0") for smoker in (*TRUE[:3], *FALSE[:3], "1", "0")]
    given = {name: np.array([[row[place]] for row in rows], dtype=object) for place, name in enumerate(LEARNED)}
    given["age"] = given["age"].astype("float64")
    labels = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})[0]
    assert list(labels) == predict(fitted, pd.DataFrame(rows, columns=[*LEARNED]))["predicted"].tolist()
    assert "fedfair.rows" in session.get_modelmeta().custom_metadata_map


def test_the_classifier_of_scikit_learn_reads_alike() -> None:
    people = table()
    x = people[[*LEARNED]].assign(smoker=people["smoker"] == "True")
    model = FairPrivateClassifier(epsilon=20.0, random_state=0).fit(x, people["ill"], sensitive_features=people["sex"])
    for smoker in (x["smoker"].astype(int), x["smoker"].astype(str).str.upper()):
        assert (model.predict(x.assign(smoker=smoker)) == model.predict(x)).all()
    with pytest.raises(ValueError, match="the rows have column 'age' more than once"):
        model._model.predict(pd.concat([x, x[["age"]]], axis=1))
    assert model.predict(x.assign(city=pd.Series([[1], {"a": 1}, (1, 2), np.array([1, 2])] * 500))).shape == (2000,)
    with pytest.raises(ValueError, match="column 'age' has '61 years' in row 1 and 1,999 other cells"):
        model.predict(x.assign(age="61 years"))


@for_each(("cell", "kind"), [([40], "a list"), ({"$numberInt": "40"}, "a record"), ([], "a list")])
@for_each("name", ["age", "city"])
def test_a_cell_of_json_that_is_no_single_value_is_refused(fitted: Path, tmp_path: Path, name: str, cell: Any,
                                                           kind: str) -> None:
    """As databases write numbers; where it trained a model it is an empty cell, as any other column's may be here."""
    row = dict(zip(LEARNED, [40, 2, True, "Oslo"], strict=True))
    rows = [{**row, "note": cell}, {**row, name: cell}]
    for file, text in (("new.json", json.dumps(rows)), ("new.jsonl", "\n".join(map(json.dumps, rows)))):
        (tmp_path / file).write_text(text)
        code, _, said = by_command(fitted, tmp_path / file, "--unreadable", "missing")
        assert code == 2
        assert f"column '{name}' has {kind} in row 2 of {tmp_path / file}, where the model needs one value" in said
    (tmp_path / "new.json").write_text(json.dumps(rows[:1]))
    assert by_command(fitted, tmp_path / "new.json")[0] == 0


@pytest.mark.parametrize(("cell", "shown"), [("=20+20", "no value"), ("#REF!", "#REF!"), ("#DIV/0!", "#DIV/0!")])
def test_a_formula_that_is_not_computed_is_refused(fitted: Path, tmp_path: Path, cell: str, shown: str) -> None:
    """A program that writes formulas into a workbook does not compute them."""
    def decided(first: object, second: object, note: object = None) -> tuple[int, list[str], str]:
        """Write a workbook with these values, and return what is decided."""
        book = openpyxl.Workbook()
        assert book.active is not None
        for row in [[*LEARNED, "note"], [first, 2, True, "Oslo", note], [second, 2, True, "Oslo", note]]:
            book.active.append(row)
        book.save(tmp_path / "new.xlsx")
        return by_command(fitted, tmp_path / "new.xlsx", "--unreadable", "missing")

    code, _, said = decided(40, cell)
    assert code == 2
    assert f"column 'age' of {tmp_path / 'new.xlsx'} has {shown} in cell A3" in said
    assert decided(40, 40, note=cell)[0] == decided(40, "#N/A")[0] == 0


@pytest.mark.parametrize("ext", ["csv", "parquet", "xlsx"])
def test_a_number_that_stands_for_a_missing_value_does_so_in_every_format_and_writing(tmp_path: Path, ext: str) -> None:
    """-999.0 of a Parquet file or a workbook, and of text, was the lowest number, in the training and in new rows."""
    draws = np.random.default_rng(3)
    lost = draws.random(1500) < 0.2
    frame = pd.DataFrame({"x": np.where(lost, -999.0, draws.normal(100, 30, 1500).round(1)),
                          "code": draws.choice([1, 2, -9], 1500), "sex": draws.choice(["f", "m"], 1500)})
    frame["y"] = np.where(lost | (frame["x"] > 100), "up", "down")
    write: dict[str, Any] = {"csv": lambda rows, path: rows.to_csv(path, index=False),
                             "parquet": lambda rows, path: rows.to_parquet(path),
                             "xlsx": lambda rows, path: rows.to_excel(path, index=False)}
    file, out = tmp_path / f"table.{ext}", tmp_path / "out"
    write[ext](frame, file)
    read = {"randomness": "seeded", "categorical": ["code"], "missing_marks": ["-999", "-9"]}
    story = save(fit(Wanted(file, "y", "sex", 20.0, settings=read)), out)
    about = story.scorecard.set_index(["column", "value"])["training records"].astype(float)
    assert abs(about["x", "missing"] - lost.sum()) < 40
    assert abs(about["code", "missing"] - (frame["code"] == -9).sum()) < 40
    expected = "up", "up", "down", "up"
    for first, other in (("-999.0", "-999"), ("-999.00", "\u2212999"), ("-9.99e2", "999-")):
        cells = (first, other, "20", "150")
        new = written(tmp_path, [["x", "code", "sex"], *([cell, "-9.0", "f"] for cell in cells)])
        code, decided, said = by_all(out, new)
        assert (code, tuple(decided)) == (0, expected), said
        assert "2 of 4 rows have none of the values" in said
        assert "'code'" not in said
    for kind, to in write.items():
        to(pd.DataFrame({"x": [-999.0, -999, 20, 150], "code": -9, "sex": "f"}), tmp_path / f"new.{kind}")
        code, decided, said = by_command(out, tmp_path / f"new.{kind}")
        assert (code, tuple(decided), "2 of 4 rows have" in said) == (0, expected, True), (kind, said)


def test_na_is_a_country_where_the_settings_say_so_in_every_form(tmp_path: Path) -> None:
    """It is a missing value elsewhere, and decided as one."""
    draws = np.random.default_rng(4)
    country = draws.choice(["NA", "DE", "FR", ""], 2000, p=[.4, .3, .2, .1])
    frame = pd.DataFrame({"country": country, "age": draws.integers(20, 80, 2000).astype(str),
                          "sex": draws.choice(["f", "m"], 2000), "ill": np.where(country == "NA", "yes", "no")})
    frame.loc[1900:, "age"] = "NA"
    frame.to_csv(tmp_path / "own.csv", index=False)
    asked = ["data", "check", str(tmp_path / "own.csv"), "--label", "ill", "--group", "sex"]
    shown = " ".join(CliRunner().invoke(app, asked, env={"COLUMNS": "300"}).output.split())
    rows = int((country == "NA").sum())
    assert f"Is 'NA' in column 'country', which counts as missing in {rows} rows, an answer, as NA is" in shown
    assert 'Then give answers = ["country"]' in shown
    assert "column 'age'" not in shown
    answered = CliRunner().invoke(app, [*asked, "--set", 'answers=["country"]'], env={"COLUMNS": "300"}).output
    assert "an answer" not in answered
    found = {}
    for name, more in (("as it is", {}), ("answers", {"answers": ["country"]})):
        folder = tmp_path / name
        settings = {"randomness": "seeded", "categorical": ["country"], "numbers": ["age"], **more}
        save(fit(Wanted(tmp_path / "own.csv", "ill", "sex", 20.0, settings=settings)), folder)
        new = frame[["country", "age"]][:200]
        new.to_csv(tmp_path / "new.csv", index=False)
        new.to_parquet(tmp_path / "new.parquet")
        code, found[name], said = by_all(folder, tmp_path / "new.csv")
        assert (code, said) == (0, "")
        assert by_command(folder, tmp_path / "new.parquet") == (0, found[name], "")
        assert predict(folder, new)["predicted"].tolist() == found[name]
        session = onnxruntime.InferenceSession(onnx_model(Story.read(folder)))
        ages = pd.to_numeric(new["age"], errors="coerce").to_numpy("float64").reshape(-1, 1)
        given = {"country": new[["country"]].to_numpy(dtype=object), "age": ages}
        assert session.run(None, given)[0].tolist() == found[name]
    assert found["answers"] == np.where(country[:200] == "NA", "yes", "no").tolist()
    assert (np.array(found["as it is"])[country[:200] == ""] == "yes").all()  # as NA, which most of them are
    with pytest.raises(ValueError, match="unknown column 'land'"):
        fit(Wanted(tmp_path / "own.csv", "ill", "sex", settings={"answers": ["land"]}, count_in=tmp_path / "fits"))
    assert not (tmp_path / "fits").exists()


def test_new_rows_in_a_large_file_are_announced_before_they_are_read(fitted: Path, tmp_path: Path) -> None:
    """The file takes no room on the disk, and is broken in its first line."""
    file = tmp_path / "new.csv"
    with file.open("wb") as stream:
        stream.write(b"age,\xff\xfe,city\n")
        stream.truncate(4 * 10**9)
    done = CliRunner().invoke(app, ["predict", str(fitted), str(file)])
    assert done.exit_code == 2
    assert done.stderr.index("is read: 4.0 GB of text in 3 columns") < done.stderr.index("is not text")


def test_a_cell_that_is_refused_is_named_by_its_file_and_its_row_there(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name, age in (("a", "40"), ("b", "forty")):
        written(tmp_path / "parts", [[*LEARNED], GOOD, [age, *GOOD[1:]]]).rename(tmp_path / "parts" / f"{name}.csv")
    code, _, said = by_command(fitted, tmp_path / "parts")
    assert (code, f"{tmp_path / 'parts' / 'b.csv'}: column 'age' has 'forty' in row 2" in said) == (2, True), said
