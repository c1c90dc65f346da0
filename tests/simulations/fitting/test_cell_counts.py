"""Counts of cells: a row adds 1 to one count of each column, whatever the others are, and wherever chunks end."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.datasets.files.chunks import chunks_of, one_chunk
from fedfair.datasets.files.table_file import read_table
from simulations.fitting.kinds import count

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
    assert one.classes == other.classes


@pytest.mark.parametrize("commas", [True, False])
@pytest.mark.parametrize("others", [["inf"] * 50, ["1.5"] * 50, ["1.234", "inf", "-Infinity", "5"] * 9, CELLS])
def test_a_row_moves_one_count_of_a_column_by_one(others: list[str], commas: bool) -> None:
    """A single text once made numbers of all cells with "inf" into texts, or back."""
    before = counted(pd.DataFrame({"a": others}, dtype=str), commas)
    for more in CELLS:
        after = counted(pd.DataFrame({"a": [*others, more]}, dtype=str), commas)
        assert (after - before).abs().sum() <= 1, more
