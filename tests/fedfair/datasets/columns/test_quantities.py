"""Dates, durations and times as numbers, in every writing; and texts that write quantities, which are asked about."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.datasets.columns.cell import Column
from fedfair.datasets.columns.convention import Asked, as_read
from fedfair.datasets.columns.kinds import understand
from fedfair.datasets.columns.quantities import UNITS, WRITTEN, number_of, quantity_of, quantity_of_text
from fedfair.datasets.columns.texts import way_of
from fedfair.datasets.columns.tidy import reading_of, tidied, typed_numbers
from fedfair.datasets.table import from_table
from tests.for_each import for_each

ROWS = 60


@given(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), st.integers(-14, 14))
def test_a_moment_is_one_number_in_every_writing(moment: datetime, offset: int) -> None:
    expected = (moment - datetime(1970, 1, 1)) / timedelta(days=1)
    assert quantity_of(moment) == quantity_of(pd.Timestamp(moment)) == ("date", pytest.approx(expected))
    (_, number), abroad = quantity_of(moment) or ("", 0), moment.replace(tzinfo=timezone(timedelta(hours=offset)))
    for text in (str(moment), moment.isoformat(), f"{moment.isoformat()}Z"):
        assert (quantity_of_text(text), number_of(text, "date")) == ("date", number)
    assert number_of(str(abroad), "date") == (quantity_of(abroad) or ("", 0))[1] == pytest.approx(number - offset / 24)
    assert typed_numbers(pd.Series([moment, None], dtype="datetime64[us]")).tolist()[:1] == [number]
    assert typed_numbers(pd.Series([pd.Timestamp(abroad)])).tolist() == [number_of(str(abroad), "date")]


@given(st.timedeltas(timedelta(days=-10**5), timedelta(days=10**5)))
def test_a_duration_is_one_number_in_every_writing(length: timedelta) -> None:
    found = quantity_of(length)
    assert found == quantity_of(pd.Timedelta(length)) == ("duration", pytest.approx(length / timedelta(days=1)))
    for text in (str(pd.Timedelta(length)), pd.Timedelta(length).isoformat()) + ((str(length),) if length.days else ()):
        assert number_of(text, "duration") == pytest.approx(found[1], abs=1e-9), text
    assert typed_numbers(pd.Series([length], dtype="timedelta64[us]")).tolist() == [found[1]]


@given(st.times())
def test_a_time_is_one_number_in_every_writing(clock: time) -> None:
    assert quantity_of(clock) == ("time", number_of(str(clock), "time"))
    assert quantity_of_text(str(clock)) == "time"


@for_each("text", ["", "7", "2024-02-30", "24:00", "12:60", "P", "PT", "days", "2024-01", "1 day ago",
                   "20240131", "31.12.2024", "2024-01-31 25:00", "٣ days"])
def test_other_texts_are_no_quantity(text: str) -> None:
    assert quantity_of_text(text) == ""


def test_a_date_is_no_moment_of_another_quantity() -> None:
    assert quantity_of(date(1970, 1, 2)) == ("date", 1.0)
    assert number_of("13:30", "date") is number_of("2024-01-31", "duration") is number_of("1 days", "time") is None


@for_each(("quantity", "text"), [(name, text) for name in UNITS for text in WRITTEN[name].split(" or ")])
def test_what_a_refusal_shows_of_a_quantity_is_read_as_one_in_tables_and_in_new_rows(quantity: str, text: str) -> None:
    asked: Any = Asked(quantities=(("x", quantity),))
    reading = reading_of(pd.DataFrame({"x": [text]}), asked)
    column = Column("x", None, None, None, frozenset(), frozenset(), ".", False, quantity)
    assert tidied(pd.DataFrame({"x": [text]}), reading)["x"].tolist() == [number_of(text, quantity)] == [
        column.number(text)]
    assert [name for name in UNITS if number_of(text, name) is not None] == [quantity]


def asked_about(values: list[Any], asked: Asked = Asked(), name: str = "x") -> tuple[str, str]:  # noqa: B008
    """Return what one column is taken as, and what is asked about it."""
    frame = pd.DataFrame({"good": [0, 1] * (ROWS // 2), "sex": ["f", "m", "m"] * (ROWS // 3),
                          name: [values[row % len(values)] for row in range(ROWS)]})
    reading = reading_of(frame, asked)
    column = understand(tidied(frame, reading), "good", "sex", asked=as_read(asked, reading))[2]
    return column.kind, column.problem or column.question or ""


@for_each(("values", "way"), [
    ([f"{number} kg" for number in range(50, 90)], "'50 kg', with a unit"),
    (["<0.5", *(f"{number / 10}" for number in range(5, 40))], "'<0.5', with a bound"),
    ([f"{number}/{number - 50}" for number in range(110, 160)], "'110/60', with two numbers"),
    ([f"{number // 60}h{number % 60:02}" for number in range(50, 90)], "'0h50', with a unit"),
    (["$52,400", "55.3k", "$48,000", "61k"], "'55.3k', with a unit"),
    (["70 kg", "71 kg", "72 kg", "unknown"], "'70 kg', with a unit"),
    (["> 100", "7", "8", "9"], "'> 100', with a bound"),
    (["12 %", "0.3", "0.4", "13 %"], "'0.3' and '12 %', with different signs"),
    (["3 months", "1 month", "2 years", "5 years"], "'3 months', with a unit")])
def test_texts_that_write_quantities_are_asked_about(values: list[str], way: str) -> None:
    kind, said = asked_about(values)
    assert kind in ("category", "identifier")
    assert "column 'x'" in said
    assert way in said
    assert 'categorical = ["x"]' in said
    assert "quantities as text" not in asked_about(values, Asked(categorical=("x",)))[1]


@for_each("values", [
    ["18-25", "26-35", "36-45", "46+"], ["0", "1", "2", "3+"], ["A1", "B2", "C3"], ["1st", "2nd"],
    [f"{number} {chr(65 + number % 26)}{chr(65 + number // 3)}" for number in range(1000, 1030)], ["01", "02", "11"],
    ["12 Main Street", "3 High Street", "4 Low Street"],
    [f"person {number}" for number in range(1990, 2030)], [f"00{number}-{number % 7}" for number in range(40)],
    [f"E{number / 10}" for number in range(20, 60)]])
def test_names_that_begin_with_numbers_are_not_asked_about(values: list[str]) -> None:
    assert "writes quantities" not in asked_about(values)[1]


def test_many_values_that_write_a_quantity_are_refused(  # before a run, whose kinds of columns all rows tell
) -> None:
    frame = pd.DataFrame({"good": [0, 1] * 30, "sex": ["f", "m"] * 30, "kg": [f"{number} kg" for number in range(60)]})
    with pytest.raises(ValueError, match="column 'kg' writes quantities as text, such as '0 kg', with a unit"):
        from_table(frame, "good", "sex")


@for_each("text", ["1,200 sq ft", "5'11\"", "≥ 5 mg/dL", "about 7", "1.5-2.5", "120/80 mmHg", "3 t",
                   "1 yr 2 mo", "£55.3k", "10x20"])
def test_ways_to_write_quantities(text: str) -> None:
    assert way_of(text)


@for_each(("values", "kind", "numbers"), [
    (["1970-01-02", "1970-01-03T12:00"], "date", [1, 2.5]), (["13:30", "00:00:36"], "time", [13.5, 0.01]),
    (["1 days 12:00:00", "P3D"], "duration", [1.5, 3]),
    (list(pd.to_timedelta([36, None], unit="h")), "duration", [1.5, None]),
    (list(pd.to_datetime(["1970-01-02", None])), "date", [1, None]), ([date(1970, 1, 2), None], "date", [1, None]),
    ([time(13, 30), None], "time", [13.5, None])])
def test_a_column_of_one_quantity_is_a_number(values: list[Any], kind: str, numbers: list[float | None]) -> None:
    frame = pd.DataFrame({"x": values, "sex": values})
    said: Any = (("x", "date"),) if kind == "date" else ()
    assert reading_of(frame, Asked(), names=["x", "sex"]).quantities == ()  # names stay names
    reading = reading_of(frame, Asked(quantities=said), names=["sex"])
    assert reading.quantities == (("x", kind),)
    read = tidied(frame, reading)["x"]
    assert [None if pd.isna(value) else value for value in read.tolist()] == pytest.approx(numbers)
    for other in ("other", "7", "2 days"):
        mixed = pd.Series([*values, other], dtype=object).astype("string").to_frame("x")
        assert (kind == "duration" and other == "2 days") or not reading_of(mixed, Asked()).quantities
