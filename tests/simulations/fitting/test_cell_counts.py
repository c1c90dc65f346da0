"""Counts of cells and classes: a row adds 1 to one count of each, whatever others are, and wherever chunks end."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.datasets.files.chunks import chunks_of, one_chunk
from fedfair.datasets.files.table_file import read_table
from simulations.fitting.kinds import count
from tests.for_each import for_each

READING = reading_as_asked(Asked())
CELLS = ["1", "2.5", "1,5", "1.234", "1.234,5", "x", "", "(5)", "007", "1e5", "inf", "1e400", "unknown", "?", "9" * 20,
         "<0.5", "70 kg", "2020-01-01", "13:30", "1 days 00:00:00", "5%", "1,5%", "2.5%"]


def counted(frame: pd.DataFrame, commas: bool = True) -> torch.Tensor:
    """Return the exact counts of a table of text."""
    return count(one_chunk(frame), [*frame], READING, commas, str(frame.columns[0])).cells


@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.tuples(*[st.sampled_from(CELLS)] * 2), min_size=2, max_size=30), cells=st.integers(2, 50),
       commas=st.booleans())
def test_it_does_not_matter_where_chunks_end(values: list[tuple[str, str]], cells: int, commas: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "own.csv"
        pd.DataFrame(values, columns=["a", "b"]).to_csv(path, index=False, sep=";")
        table = read_table(path)
        chunks, whole = chunks_of(path, cells=cells), one_chunk(table.frame, table.separator)
        one, other = (count(each, ["a", "b"], READING, commas, "a") for each in (chunks, whole))
    assert one.records == other.records == len(table.frame)
    assert torch.equal(one.cells, other.cells)
    assert torch.equal(one.labels, other.labels)


@for_each("commas", [True, False])
@for_each("others", [["inf"] * 50, ["1.5"] * 50, ["1.234", "inf", "-Infinity", "5"] * 9, CELLS])
def test_a_row_moves_one_count_of_a_column_by_one(others: list[str], commas: bool) -> None:
    """A single text once made numbers of all cells with "inf" into texts, or back."""
    before = counted(pd.DataFrame({"a": others}, dtype=str), commas)
    for more in CELLS:
        after = counted(pd.DataFrame({"a": [*others, more]}, dtype=str), commas)
        assert (after - before).abs().sum() <= 1, more


LABELS = ["yes", "no", "perhaps", " no ", "", "unknown"]
people = st.lists(st.tuples(*[st.sampled_from(CELLS)] * 2, st.sampled_from(LABELS)), min_size=1, max_size=20)
NOTHING = ("", "", "")
EVERY_CLASS = [("1", "x", label) for label in LABELS]


def released(rows: list[tuple[str, str, str]], commas: bool) -> torch.Tensor:
    """Return all numbers that a fit releases of two columns and a label, without noise, as one vector."""
    frame = pd.DataFrame([*EVERY_CLASS, *rows], columns=["a", "b", "label"], dtype=str)
    exact = count(one_chunk(frame), ["a", "b"], READING, commas, "label")
    return torch.cat([numbers.flatten() for numbers in exact.released.values()])


@settings(max_examples=60, deadline=None)
@given(rows=people, place=st.integers(0, 19), commas=st.booleans())
def test_a_row_in_place_of_an_empty_one_moves_m_and_2_numbers_by_1_at_most(rows: list[tuple[str, str, str]], place: int,
                                                                         commas: bool) -> None:
    """The sensitivity by which the noise is scaled: sqrt(m + 2), of m = 2 columns; which classes occur is public."""
    emptied = [NOTHING if number == place % len(rows) else row for number, row in enumerate(rows)]
    moved = released(rows, commas) - released(emptied, commas)
    assert float(moved.norm()) <= math.sqrt(2 + 2)
    assert float(moved.abs().max()) <= 1


def test_a_row_without_missing_cells_moves_all_of_them() -> None:
    moved = released([("1", "x", "yes")], True) - released([NOTHING], True)
    assert float(moved.norm()) == math.sqrt(2 + 2)


def test_another_label_moves_one_row_from_class_to_class() -> None:
    moved = released([("1", "x", "yes")], True) - released([("1", "x", "no")], True)
    assert sorted(moved[moved != 0].tolist()) == [-1, 1]


def test_a_class_has_the_rows_that_name_it_however_they_are_spaced() -> None:
    frame = pd.DataFrame({"a": ["1"] * 6, "label": LABELS})
    assert sorted(count(one_chunk(frame), ["a"], READING, True, "label").labels.tolist()) == [1, 1, 1, 2]
