"""A workbook: a row of names below a title, and merged cells, which are refused before a record is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.files.chunks import chunks_of
from fedfair.datasets.files.table_file import read_table

NAMES, ROWS = ("age", "sex", "hired"), [(30, "f", "yes"), (41, "m", "no"), (52, "f", "no"), (63, "m", "yes")]


def workbook(path: Path, rows: Sequence[Sequence[Any]], merged: Sequence[str] = ()) -> Path:
    """Write a workbook of one sheet, whose cells `merged` are merged as a spreadsheet program does it."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in rows:
        sheet.append(row)
    for cells in merged:
        sheet.merge_cells(cells)
    book.save(path)
    return path


@pytest.mark.parametrize(("shown", "text"), [("0%", "7%"), ("0.00 %;[Red]-0.00 %", "7%"), ('0" %"', None),
                                             ("0\\%", None), ("General", None)])
def test_a_number_that_is_shown_in_per_cent_is_one(tmp_path: Path, shown: str, text: str | None) -> None:
    book = openpyxl.load_workbook(workbook(tmp_path / "own.xlsx", [("rate", *NAMES), *((0.07, *row) for row in ROWS)]))
    book.worksheets[0]["A2"].number_format = shown
    book.save(tmp_path / "own.xlsx")
    read = read_table(tmp_path / "own.xlsx").frame["rate"].tolist()
    assert read == [text or 0.07, 0.07, 0.07, 0.07]
    comma = read_table(workbook(tmp_path / "own.xlsx", [NAMES, *ROWS]), Asked(decimal=(("", ","),))).frame
    assert comma["age"].tolist() == [30, 41, 52, 63]


@pytest.mark.parametrize("cells", ["B2:B3", "B4:C4", "B1:C1", "A2:C3"])
def test_merged_cells_are_refused_by_their_column(tmp_path: Path, cells: str) -> None:
    path = workbook(tmp_path / "own.xlsx", [NAMES, *ROWS], [cells])
    for read in (read_table, chunks_of):
        with pytest.raises(ValueError, match=r"'sex'.* merged cells .*unmerge them"):
            read(path)


def test_a_title_may_be_merged_and_the_names_stand_where_the_user_says(tmp_path: Path) -> None:
    path = workbook(tmp_path / "own.xlsx", [("People of the year", None, None), (), NAMES, *ROWS], ["A1:C1"])
    asked = Asked(header_row=3)
    read = read_table(path, asked).frame
    assert [*read] == [*NAMES]
    assert [*read.itertuples(index=False, name=None)] == ROWS
    assert chunks_of(path, asked).names == [*NAMES]


@pytest.mark.parametrize("title", [("A title", None, None), (), ("A title", None, None, "2024")])
def test_a_title_in_place_of_names_asks_for_their_row(tmp_path: Path, title: tuple[str | None, ...]) -> None:
    path = workbook(tmp_path / "own.xlsx", [title, NAMES, *ROWS])
    with pytest.raises(ValueError, match=r"row 1 .* is no row of names.*header_row"):
        read_table(path)
    assert len(read_table(path, Asked(header_row=2)).frame) == len(ROWS)


def test_a_column_without_a_name_has_one_by_its_place(tmp_path: Path) -> None:
    path = workbook(tmp_path / "own.xlsx", [(None, *NAMES), *((place, *row) for place, row in enumerate(ROWS))])
    assert [*read_table(path).frame] == ["Unnamed: 0", *NAMES]


def test_a_cell_beside_the_table_makes_no_column(tmp_path: Path) -> None:
    rows = [NAMES, ROWS[0], (*ROWS[1], None, "a note"), *ROWS[2:]]
    frame = read_table(workbook(tmp_path / "own.xlsx", rows)).frame
    assert [*frame] == [*NAMES]
    assert [*frame.itertuples(index=False, name=None)] == ROWS


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names column 'age' more than once"):
        read_table(workbook(tmp_path / "own.xlsx", [("age", "age"), (1, 2)]))


def test_a_row_of_names_beyond_the_records_is_refused(tmp_path: Path) -> None:
    path = workbook(tmp_path / "own.xlsx", [NAMES, *ROWS])
    with pytest.raises(ValueError, match=r"below row 9.*another header_row"):
        read_table(path, Asked(header_row=9))


def test_a_row_of_names_is_said_of_workbooks_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("a title\nage,hired\n1,yes\n")
    for read in (read_table, chunks_of):
        with pytest.raises(ValueError, match=r"header_row is 2, but .* is no workbook"):
            read(path, Asked(header_row=2))


@settings(max_examples=20, deadline=None)
@given(row=st.integers(0, len(ROWS) - 1), cells=st.lists(st.sampled_from([None, "", 7, "x", 2.5]), min_size=3,
                                                         max_size=3))
def test_what_a_row_holds_changes_no_other(row: int, cells: list[Any]) -> None:
    changed = [*ROWS]
    changed[row] = tuple(cells)
    with TemporaryDirectory() as folder:
        read = read_table(workbook(Path(folder) / "own.xlsx", [NAMES, *changed])).frame
    others = [place for place in range(len(ROWS)) if place != row and place < len(read)]
    assert [tuple(read.iloc[place]) for place in others] == [ROWS[place] for place in others]
