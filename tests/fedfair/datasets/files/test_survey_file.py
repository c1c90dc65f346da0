"""Files of SPSS, Stata and SAS: value labels, values declared as missing, dates; one row by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyreadstat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.datasets import names
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import listed, reading_as_asked
from fedfair.datasets.features.kept_table import kept_table
from fedfair.datasets.files.chunks import chunks_of, read_files
from fedfair.datasets.files.table_file import read_table
from fedfair.datasets.table import from_csv
from tests.for_each import for_each

LABELS: dict[str, dict[Any, str]] = {"sex": {1: "male", 2: "female", 9: "refused"}, "age": {998: "no answer"}}
RANGES: dict[str, list[Any]] = {"sex": [9], "age": [{"lo": 990, "hi": 999}], "town": ["x"]}


def people(**changed: Any) -> pd.DataFrame:
    """Return a small table as a program for statistics holds it."""
    columns = {"sex": [1.0, 2, 9, np.nan], "age": [30.0, 41.5, 998, 22], "town": ["a", "b", "x", ""],
               "born": [1.3e10, 1.2e10, np.nan, 1e300], "stay": [3600.0, 90000, np.nan, -60]}
    return pd.DataFrame({**columns, **changed})


def saved(folder: Path, frame: pd.DataFrame | None = None, **declared: Any) -> Path:
    """Write a table as a file of SPSS."""
    known = {"variable_value_labels": LABELS, "missing_ranges": RANGES,
             "variable_format": {"born": "DATETIME20", "stay": "TIME8"}, **declared}
    pyreadstat.write_sav(people() if frame is None else frame, folder / "people.sav", **known)
    return folder / "people.sav"


def test_labels_are_categories_and_what_is_declared_as_missing_is(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                ) -> None:
    names.warn_once.cache_clear()
    table = read_table(saved(tmp_path))
    assert listed(table.frame) == ("sex",)  # the only label of age is of a value that is missing
    assert table.described == "sav, a file of SPSS, whose value labels are the categories of sex"
    assert table.frame["sex"].tolist()[:2] == ["male", "female"]
    assert table.frame.isna().sum().to_dict() == {"sex": 2, "age": 1, "town": 1, "born": 2, "stay": 1}
    assert table.frame["age"].tolist()[:2] == [30.0, 41.5]
    read_table(tmp_path / "people.sav")
    assert caplog.text.count("count as missing: sex (9), age (990 to 999), town (x)") == 1


def test_moments_and_durations_are_what_the_file_declares(tmp_path: Path) -> None:
    """Seconds since 1582-10-14 as SPSS counts them; a moment outside any calendar is missing and no error."""
    frame = read_table(saved(tmp_path)).frame
    assert frame["born"][0] == pd.Timestamp("1582-10-14") + pd.to_timedelta(1.3e10, "s").as_unit("us")
    assert frame["stay"].tolist()[:2] == [pd.Timedelta(hours=1), pd.Timedelta(hours=25)]
    assert frame["stay"][3] == -pd.Timedelta(minutes=1)
    empty = people(born=[np.nan] * 4, stay=[np.nan] * 4)
    assert read_table(saved(tmp_path, empty)).frame.dtypes.to_dict() == frame.dtypes.to_dict()
    assert chunks_of(tmp_path / "people.sav").declared == (("born", "date"), ("stay", "duration"))


def test_a_column_that_is_asked_for_as_numbers_has_no_categories(tmp_path: Path) -> None:
    """As ages, of which only the last has a label: "89 and older"."""
    frame = people(age=[30.0, 41, 998, 89])
    path = saved(tmp_path, frame, variable_value_labels={"age": {89: "89 and older", 998: "no answer"}})
    assert read_table(path).frame["age"].tolist()[:2] == ["30", "41"]
    assert read_table(path, Asked(numeric=("age",))).frame["age"].dropna().tolist() == [30.0, 41.0, 89.0]
    chunks = chunks_of(path, Asked(numeric=("age",)))
    assert chunks.listed == ()


def test_values_without_a_label_and_labels_that_do_not_tell(tmp_path: Path) -> None:
    labels = {"sex": {1.0: "other", 2.0: "other", 9.0: "None"}}
    path = saved(tmp_path, people(sex=[1.0, 2, 9, 7]), variable_value_labels=labels, missing_ranges={})
    assert read_table(path).frame["sex"].tolist() == ["other (1)", "other (2)", "None (9)", "7"]


def test_stata_s_tags_and_dates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names.warn_once.cache_clear()
    frame = pd.DataFrame({"sex": pd.Series([1, 2, "a"], dtype=object), "day": [1.0, 366, np.nan],
                          "quarter": [0.0, 5, 1], "clock": [60000.0, 0, np.nan], "kind": ["p", "q", ""],
                          "whole": [1, 2, 3],
                          "pay": pd.Series([1.5, "b", 2.5], dtype=object)})
    pyreadstat.write_dta(frame, tmp_path / "people.dta", missing_user_values={"sex": ["a"], "pay": ["b"]},
                         variable_value_labels={"sex": {1: "male", 2: "female", "a": "refused"}, "pay": {"b": "none"}},
                         variable_format={"day": "%td", "quarter": "%tq", "clock": "%tc"})
    read = read_table(tmp_path / "people.dta").frame
    assert read["sex"].astype("string").fillna("").tolist() == ["male", "female", ""]
    assert read["day"].astype("string").tolist()[:2] == ["1960-01-02", "1961-01-01"]
    assert read["quarter"].astype("string").tolist() == ["1960-01-01", "1961-04-01", "1960-04-01"]
    assert read["clock"][0] == pd.Timestamp("1960-01-01 00:01")
    assert read["whole"].dtype == "float64"  # as where a value is missing
    assert read["pay"].fillna(-1).tolist() == [1.5, -1, 2.5]
    assert "sex (.a), pay (.b)" in caplog.text


def test_a_transport_file_of_sas(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [30.5, np.nan], "day": [1.0, 366], "time": [60.0, 7200], "sex": ["m", "f"]})
    pyreadstat.write_xport(frame, tmp_path / "people.xpt", variable_format={"day": "DATE9.", "time": "TIME8."})
    read = read_table(tmp_path / "people.xpt").frame
    assert read["day"].astype("string").tolist() == ["1960-01-02", "1961-01-01"]
    assert read["time"].tolist() == [pd.Timedelta(minutes=1), pd.Timedelta(hours=2)]
    assert read["age"].isna().tolist() == [False, True]


VALUES = {"sex": [1.0, 2.0, 9.0, 7.0, 2.5, np.nan], "age": [0.0, 1.5, 991.0, 1e16, -1.0, np.nan],
          "town": ["a", "x", "", "1", "None"], "born": [0.0, 1.3e10, -5.5, 1e300, np.nan],
          "stay": [0.0, 1e5, -1.25, 1e300, np.nan]}


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(sorted(VALUES)))
def test_a_value_changes_no_other_row(data: st.DataObject, column: str) -> None:
    rows = {name: data.draw(st.lists(st.sampled_from(values), min_size=4, max_size=4)) for name, values in
            VALUES.items()}
    place, value = data.draw(st.integers(0, 3)), data.draw(st.sampled_from(VALUES[column]))
    other = {**rows, column: [*rows[column][:place], value, *rows[column][place + 1:]]}
    tables = []
    with TemporaryDirectory() as folder:
        for each in (rows, other):
            path = saved(Path(folder), pd.DataFrame({**each, "y": ["p", "q", "p", "q"]}))
            asked = Asked(quantities=(("born", "date"), ("stay", "duration")))
            kept = kept_table(chunks_of(path, asked), reading_as_asked(asked), "y", ("age", "born", "stay"))
            table = pd.concat(kept.columns(chunks_of(path, asked).names), axis=1)
            tables.append(table.drop(index=place).astype({"sex": "string", "town": "string"}))
    pd.testing.assert_frame_equal(*tables)


def test_several_files_are_one_table_whichever_labels_occur(tmp_path: Path) -> None:
    for number, sex in enumerate(([1.0] * 4, [2.0] * 4)):
        (tmp_path / str(number)).mkdir()
        saved(tmp_path / str(number), people(sex=sex)).rename(tmp_path / f"{number}.sav")
        (tmp_path / str(number)).rmdir()
    assert read_files(tmp_path).frame["sex"].tolist() == ["male"] * 4 + ["female"] * 4
    assert listed(read_files(tmp_path).frame) == ("sex",) == chunks_of(tmp_path).listed


def test_labels_that_are_numbers_stay_categories_of_a_run(tmp_path: Path) -> None:
    frame = pd.DataFrame({"rooms": [1.0, 2, 3] * 4, "age": [30.0, 41.5, 22] * 4, "sex": [1.0, 2] * 6,
                          "good": [0.0, 1, 1, 0] * 3})
    path = saved(tmp_path, frame, missing_ranges={}, variable_value_labels={
        "rooms": {1: "1", 2: "2", 3: "3"}, "sex": {1: "m", 2: "f"}, "good": {0: "no", 1: "yes"}})
    data = from_csv(path, "good", "sex")
    assert [feature.column for feature in data.encoding.features] == ["age", "rooms", "rooms", "rooms", "sex", "sex"]
    assert (data.names, data.labels) == (("f", "m"), ("no", "yes"))


def test_without_pyreadstat_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    with pytest.raises(ValueError, match=r"is a file of SPSS, which needs .*: pip install 'fedfair\[pyreadstat\]'"):
        read_table(path)


@for_each("name", ["a.sav", "a.zsav", "a.por", "a.dta", "a.sas7bdat", "a.xpt"])
def test_a_file_that_is_cut_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"$FL2 not a file")
    with pytest.raises(ValueError, match=f"{name} cannot be read as {name[2:]}"):
        read_table(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / f"no{name}")
