"""New rows with quantities (dates, durations, times, per cent) are decided alike by every form of a model, or refused.

A number without its unit is none of them, and none of them is a plain number.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

from simulations.fitting.classifier import FairPrivateClassifier
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.save import save
from simulations.results.classifier import predict
from tests.for_each import for_each
from tests.simulations.fitting.forms import by_all, by_command, table, written

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
