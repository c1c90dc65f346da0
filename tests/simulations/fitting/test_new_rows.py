"""New rows, however they are written, get the same decisions or the same refusal from every form of a model."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
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

_TRUE, _FALSE = ["True", "TRUE", "true", "t", "1", "1.0"], ["False", "FALSE", "false", "F", "0", "0.0"]
_LEARNED = {"age": [20, 40, 60, 80], "code": ["1", "2", "3"], "smoker": ["True", "False"], "city": ["Oslo", "Bergen"]}
"""What the columns of the training hold."""


def table(rows: int = 2000) -> pd.DataFrame:
    """Return numbers, codes, truth values and names."""
    draws = np.random.default_rng(1)
    made = pd.DataFrame({name: draws.choice(values, rows) for name, values in _LEARNED.items()})
    ill = made["age"] + 30 * (made["smoker"] == "True") + 10 * (made["city"] == "Oslo") + draws.normal(0, 9, rows) > 70
    return made.assign(sex=draws.choice(["f", "m"], rows), ill=np.where(ill, "yes", "no"))


SETTINGS: dict[str, Any] = {"randomness": "seeded", "categorical": ["code", "smoker", "city"], "numbers": ["age"],
                            "bins": 4, "ranges": {"age": (0, 100)}}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit."""
    out = tmp_path_factory.mktemp("fits") / "ill"
    save(fit(Wanted(table(), "ill", "sex", 20.0, settings=SETTINGS)), out)
    return out


def written(folder: Path, rows: list[list[str]], separator: str = ",", mark: str = "") -> Path:
    """Write a file."""
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    path = folder / "new.csv"
    path.write_text(mark + text.getvalue(), encoding="utf-8")
    return path


def by_command(folder: Path, file: Path, *more: str) -> tuple[int, list[str], str]:
    """Return the code, the decisions and stderr of `fedfair predict`."""
    logged, logger = io.StringIO(), logging.getLogger("simulations.results.classifier")
    handler = logging.StreamHandler(logged)  # under pytest the log is not on stderr
    logger.addHandler(handler)
    done = CliRunner().invoke(app, ["predict", str(folder), str(file), *more])
    logger.removeHandler(handler)
    rows = pd.read_csv(io.StringIO(done.stdout), dtype=str)["predicted"].tolist() if done.exit_code == 0 else []
    return done.exit_code, rows, done.stderr + logged.getvalue()


def by_program(folder: Path, file: Path, *more: str) -> tuple[int, list[str], str]:
    """Return the code, the decisions and stderr of predict.py."""
    out, said, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        patch.setattr("sys.argv", ["predict.py", str(file), *more])
        try:
            runpy.run_path(str(folder / "predict.py"), run_name="__main__")
        except SystemExit as end:
            code = int(str(end.code))
    rows = [row["predicted"] for row in csv.DictReader(io.StringIO(out.getvalue()))]
    return code, rows, said.getvalue()


def by_all(folder: Path, file: Path, *more: str) -> tuple[int, list[str], str]:
    """Return what command and program do, which is the same."""
    command, program = by_command(folder, file, *more), by_program(folder, file, *more)
    assert command == program
    return program


ROWS = st.lists(st.tuples(st.sampled_from(["20", "40", "60.0", "80", "1e1", "$70", "", "?"]),
                          st.sampled_from(["1", "2", "3", "1.0", "02", ""]), st.sampled_from([*_TRUE, *_FALSE]),
                          st.sampled_from(["Oslo", "Bergen", " Oslo ", "NA"])), min_size=1, max_size=8)
PLAIN = {"$70": "70", "02": "2", "1.0": "1", " Oslo ": "Oslo", "60.0": "60", "1e1": "10", "?": "", "NA": ""}


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate],
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, separator=st.sampled_from(",;\t|"), mark=st.sampled_from(["", "\ufeff"]), order=st.permutations(
    range(4)))
def test_writings_of_one_row_get_one_decision(fitted: Path, tmp_path: Path, rows: list[tuple[str, ...]],
                                              separator: str, mark: str, order: list[int]) -> None:
    simple = [(PLAIN.get(age, age), PLAIN.get(code, code), str(smoker in _TRUE), PLAIN.get(city, city))
              for age, code, smoker, city in rows]
    expected = by_all(fitted, written(tmp_path, [[*_LEARNED], *map(list, simple)]))
    assert (expected[0], expected[2]) == (0, "")
    shuffled = [[list(row)[place] for place in order] for row in [tuple(_LEARNED), *rows]]
    assert by_all(fitted, written(tmp_path, shuffled, separator, mark)) == expected
    typed = pd.DataFrame(simple, columns=[*_LEARNED]).assign(
        age=lambda frame: pd.to_numeric(frame["age"]), code=lambda frame: pd.to_numeric(frame["code"]),
        smoker=lambda frame: frame["smoker"] == "True")
    assert predict(fitted, typed)["predicted"].tolist() == expected[1]


GOOD = ["40", "2", "True", "Oslo"]


@for_each(("cell", "plain"), [(pd.NA, None), (pd.NaT, None), (np.bool_(True), True), (np.int8(1), 1),
                              (np.array([1, 2]), "[1 2]")])
def test_values_of_pandas_and_numpy_are_read_by_the_program_as_by_predict(fitted: Path, cell: Any, plain: Any) -> None:
    read = runpy.run_path(str(fitted / "predict.py"))["read"]
    row = dict(zip(_LEARNED, [40, 2, True, "Oslo"], strict=True))
    for name in _LEARNED:
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
    ([*_LEARNED], GOOD[:3], "row 2 of "),
    ([*_LEARNED], ["61 years", *GOOD[1:]], "column 'age' has '61 years' in row 2"),
    ([*_LEARNED], ["57.157,10", *GOOD[1:]], "column 'age' has '57.157,10' in row 2"),
    ([*_LEARNED], ["57,1", *GOOD[1:]], "column 'age' has '57,1' in row 2"),
    ([*_LEARNED], ["inf", *GOOD[1:]], "column 'age' has 'inf' in row 2"),
    ([*_LEARNED], ["True", *GOOD[1:]], "column 'age' has 'True' in row 2")])
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
    strange = written(tmp_path, [[*_LEARNED], GOOD, ["61 years", *GOOD[1:]], ["many", *GOOD[1:]]])
    code, rows, said = by_all(fitted, strange, "--unreadable", "missing")
    assert (code, said) == (0, "2 of 3 values of 'age' are no numbers and count as missing: '61 years', 'many'\n")
    assert rows == by_all(fitted, written(tmp_path, [[*_LEARNED], GOOD, *[["", *GOOD[1:]]] * 2]))[1]


def test_a_row_without_any_value_is_not_decided_in_silence(fitted: Path, tmp_path: Path) -> None:
    """As spreadsheets write below a table, and as a line of JSON is that is none."""
    said = "2 of 4 rows have none of the values that the model needs, or cannot be read, and are decided as one of " \
           "which all values are missing: row 2, 4\n"
    rows = written(tmp_path, [[*_LEARNED], GOOD, [""] * 4, ["", *GOOD[1:]], ["unknown", "NA", "", "?"]])
    assert (by_all(fitted, rows)[0], by_all(fitted, rows)[2]) == (0, said)
    record = json.dumps(dict(zip(_LEARNED, GOOD, strict=True)))
    (tmp_path / "new.jsonl").write_text(f"{record}\n{{oops\n{record}\n{{}}\n")
    assert by_command(fitted, tmp_path / "new.jsonl")[2] == said


def test_a_category_that_the_model_does_not_know_is_said(fitted: Path, tmp_path: Path) -> None:
    code, _, said = by_all(fitted, written(tmp_path, [[*_LEARNED], GOOD, [*GOOD[:3], "Rome"], [*GOOD[:3], "OSLO"],
                                                      [*GOOD[:2], "maybe", "Oslo"], ["40", "17", *GOOD[2:]],
                                                      ["40", "\u0661", *GOOD[2:]], ["40", "0_1", *GOOD[2:]]]))
    assert code == 0
    for words in ("2 of 7 values of 'city' are none of the categories", "count as 'other': 'Rome', 'OSLO'",
                  "1 of 7 values of 'smoker' is none", "'maybe'", "3 of 7 values of 'code' are none", "'17', '\u0661'"):
        assert words in said


def test_onnx_knows_the_usual_writings(fitted: Path) -> None:
    session = onnxruntime.InferenceSession(onnx_model(Story.read(fitted)))
    rows = [("40", code, smoker, "Oslo") for code in ("1", "1.0") for smoker in (*_TRUE[:3], *_FALSE[:3], "1", "0")]
    given = {name: np.array([[row[place]] for row in rows], dtype=object) for place, name in enumerate(_LEARNED)}
    given["age"] = given["age"].astype("float64")
    labels = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})[0]
    assert list(labels) == predict(fitted, pd.DataFrame(rows, columns=[*_LEARNED]))["predicted"].tolist()
    assert "fedfair.rows" in session.get_modelmeta().custom_metadata_map


def test_the_classifier_of_scikit_learn_reads_alike() -> None:
    people = table()
    x = people[[*_LEARNED]].assign(smoker=people["smoker"] == "True")
    model = FairPrivateClassifier(epsilon=20.0, random_state=0).fit(x, people["ill"], sensitive_features=people["sex"])
    for smoker in (x["smoker"].astype(int), x["smoker"].astype(str).str.upper()):
        assert (model.predict(x.assign(smoker=smoker)) == model.predict(x)).all()
    with pytest.raises(ValueError, match="the rows have column 'age' more than once"):
        model._model.predict(pd.concat([x, x[["age"]]], axis=1))
    assert model.predict(x.assign(city=pd.Series([[1], {"a": 1}, (1, 2), np.array([1, 2])] * 500))).shape == (2000,)
    with pytest.raises(ValueError, match="column 'age' has '61 years' in row 1 and 1,999 other cells"):
        model.predict(x.assign(age="61 years"))


MOMENTS = {"stay": ["0 days 12:00:00", "200 days 00:00:00"], "born": ["1990-01-01", "1995-06-01"],
           "woke": ["01:00:00", "23:30:00"]}
"""What programs write of durations, dates and times; the first of each is mostly not ill."""


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit of durations, dates and times."""
    draws = np.random.default_rng(3)
    late = pd.DataFrame({name: draws.integers(0, 2, 2000) for name in MOMENTS})
    ill = late.sum(axis=1) > 1
    frame = pd.DataFrame({name: np.array(values)[late[name]] for name, values in MOMENTS.items()})
    typed = frame.assign(stay=pd.to_timedelta(frame["stay"]), born=pd.to_datetime(frame["born"]))
    out = tmp_path_factory.mktemp("fits") / "moments"
    made = typed.assign(sex=draws.choice(["f", "m"], 2000), ill=np.where(ill, "yes", "no"))
    save(fit(Wanted(made, "ill", "sex", 20.0, settings={"randomness": "seeded", "quantities": {"born": "date"}})), out)
    return out


def test_a_quantity_is_read_as_its_type_was_in_all_forms(moments: Path, tmp_path: Path) -> None:
    early, late = ({name: values[place] for name, values in MOMENTS.items()} for place in (0, 1))
    writings = {"stay": ["200 days, 0:00:00", "P200D"], "born": ["1995-06-01 00:00:00", "1995-06-01T02:00+02:00"],
                "woke": ["23:30", "23:30:00.0"]}
    rows = [early, late, *({**late, name: other} for name, others in writings.items() for other in others)]
    expected = ["no", *["yes"] * (len(rows) - 1)]
    file = written(tmp_path, [[*MOMENTS], *([row[name] for name in MOMENTS] for row in rows)])
    assert by_all(moments, file) == (0, expected, "")
    typed = pd.DataFrame([early, late])
    typed = typed.assign(stay=pd.to_timedelta(typed["stay"]), born=pd.to_datetime(typed["born"]).dt.tz_localize("UTC"))
    assert predict(moments, typed)["predicted"].tolist() == expected[:2]


@for_each(("name", "cell"), [("stay", "200"), ("stay", "1995-06-01"), ("born", "9282"),
                             ("born", "1.6.1995"), ("woke", "25:00"), ("woke", "7")])
def test_a_number_without_its_unit_is_refused_where_a_quantity_stands(moments: Path, tmp_path: Path, name: str,
                                                                      cell: str) -> None:
    row = {**{column: values[0] for column, values in MOMENTS.items()}, name: cell}
    code, _, said = by_all(moments, written(tmp_path, [[*MOMENTS], [row[column] for column in MOMENTS]]))
    assert code == 2
    assert f"column '{name}' has '{cell}' in row 1, where the model needs a " in said
    typed = pd.DataFrame([row]).assign(**{name: [float(cell) if cell.isdigit() else cell]})
    with pytest.raises(ValueError, match=f"column '{name}' has"):
        predict(moments, typed)
    assert by_all(moments, written(tmp_path, [[*MOMENTS], [row[column] for column in MOMENTS]]),
                  "--unreadable", "missing")[0] == 0


@for_each(("cell", "kind"), [([40], "a list"), ({"$numberInt": "40"}, "a record"), ([], "a list")])
@for_each("name", ["age", "city"])
def test_a_cell_of_json_that_is_no_single_value_is_refused(fitted: Path, tmp_path: Path, name: str, cell: Any,
                                                           kind: str) -> None:
    """As databases write numbers; where it trained a model it is an empty cell, as any other column's may be here."""
    row = dict(zip(_LEARNED, [40, 2, True, "Oslo"], strict=True))
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
        for row in [[*_LEARNED, "note"], [first, 2, True, "Oslo", note], [second, 2, True, "Oslo", note]]:
            book.active.append(row)
        book.save(tmp_path / "new.xlsx")
        return by_command(fitted, tmp_path / "new.xlsx", "--unreadable", "missing")

    code, _, said = decided(40, cell)
    assert code == 2
    assert f"column 'age' of {tmp_path / 'new.xlsx'} has {shown} in cell A3" in said
    assert decided(40, 40, note=cell)[0] == decided(40, "#N/A")[0] == 0


def owing(rows: int) -> tuple[pd.DataFrame, list[float]]:
    """Return people with what they owe, and the rate of each as a share."""
    draws = np.random.default_rng(3)
    rates = (draws.integers(10, 900, rows) / 1000).tolist()
    late = np.where(np.array(rates) + draws.normal(0, 0.1, rows) > 0.45, "yes", "no")
    sex = draws.choice(["f", "m"], rows)
    return pd.DataFrame({"age": draws.integers(20, 80, rows), "sex": sex, "late": late}), rates


def in_workbook(path: Path, frame: pd.DataFrame, rates: list[float], shown: str, name: str = "rate") -> Path:
    """Write rows with rates as numbers that a sheet shows in a format."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append([*frame, name])
    for row, rate in zip(frame.itertuples(index=False), rates, strict=True):
        sheet.append([*row, rate])
        sheet.cell(sheet.max_row, frame.shape[1] + 1).number_format = shown
    book.save(path)
    return path


def with_commas(path: Path, frame: pd.DataFrame) -> Path:
    """Write rows as a spreadsheet with a decimal comma does."""
    frame.assign(rate=frame["rate"].str.replace(".", ",")).to_csv(path, index=False, sep=";")
    return path


@pytest.mark.parametrize("trained_on", ["text", "workbook", "commas"])
def test_a_rate_in_per_cent_is_one_in_every_format_or_is_refused(tmp_path: Path, trained_on: str) -> None:
    people, rates = owing(1500)
    source = people.assign(rate=[f"{100 * rate:.15g} %" for rate in rates])
    data = {"text": source, "workbook": in_workbook(tmp_path / "own.xlsx", people, rates, "0.0%"),
            "commas": with_commas(tmp_path / "own.csv", source)}[trained_on]
    settings = {"randomness": "seeded", "noise": "gaussian"}
    folder = tmp_path / "late"
    save(fit(Wanted(data, "late", "sex", 20.0, settings=settings)), folder)
    new, shares = source.head(40).drop(columns="late"), rates[:40]
    new.to_csv(tmp_path / "new.csv", index=False)
    if trained_on == "commas":
        with_commas(tmp_path / "new.csv", new)
    code, decisions, said = by_all(folder, tmp_path / "new.csv")
    assert (code, said) == (0, "")
    assert len({*decisions}) == 2
    for shown in ("0%", '0.00" of all "%'):
        file = in_workbook(tmp_path / "new.xlsx", new.drop(columns="rate"), shares, shown)
        assert by_command(folder, file) == (0, decisions, "")
    new.assign(rate=shares).to_csv(tmp_path / "plain.csv", index=False)
    new.assign(rate=shares).to_parquet(tmp_path / "new.parquet")
    plain = in_workbook(tmp_path / "plain.xlsx", new.drop(columns="rate"), shares, '0.0"%"')
    for done in (by_all(folder, tmp_path / "plain.csv"), by_command(folder, tmp_path / "new.parquet"),
                 by_command(folder, plain)):
        assert done[0] == 2
        assert f"column 'rate' has '{shares[0]}' in row 1" in done[2]
        assert "the model needs a percentage, such as 40 %" in done[2]


def test_a_percentage_is_no_plain_number_of_which_a_model_learned(fitted: Path, tmp_path: Path) -> None:
    """A cell that a workbook shows as 40 % counted as 40 where the training had .4."""
    rows = pd.DataFrame({"age": ["60", "40 %", "5‰"], "code": ["1"] * 3, "smoker": [True] * 3, "city": ["Oslo"] * 3})
    file = written(tmp_path, [[*rows], *rows.astype(str).to_numpy().tolist()])
    said = "column 'age' has '40 %' in row 2 and 1 other cell that is no number, where the model needs a number"
    code, _, refused = by_all(fitted, file)
    assert (code, said in refused) == (2, True)
    with pytest.raises(ValueError, match=said):
        predict(fitted, rows)
    code, decided, counted = by_all(fitted, file, "--unreadable", "missing")
    assert (code, counted) == (0, "2 of 3 values of 'age' are no numbers and count as missing: '40 %', '5‰'\n")
    empty = rows.assign(age=["60", "", ""]).astype(str)
    assert decided == by_all(fitted, written(tmp_path, [[*rows], *empty.to_numpy().tolist()]))[1]
    shown = in_workbook(tmp_path / "new.xlsx", rows[["code", "smoker", "city"]], [.6, .4, .2], "0%", "age")
    code, _, refused = by_command(fitted, shown)
    assert (code, "column 'age' has '60%' in row 1 and 2 other cells" in refused) == (2, True)
    model = FairPrivateClassifier(epsilon=20.0, random_state=0).fit(table(1000)[["age"]], table(1000)["ill"])
    with pytest.raises(ValueError, match="column 'age' has '40 %' in row 2"):
        model.predict(rows[["age"]])


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
