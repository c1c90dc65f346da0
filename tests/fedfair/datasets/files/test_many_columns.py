"""Names of very many columns are compared a few times each, not each with each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedfair.datasets.columns.cell import refuse_absent, repeated
from fedfair.datasets.files import plain_rows, table_file

COLUMNS = 2000


class Name(str):
    """A text that counts how often texts like it are compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        """Count, and compare."""
        Name.compared += 1
        return str.__eq__(self, other)


@pytest.fixture(autouse=True)
def none_yet() -> None:
    """Begin to count."""
    Name.compared = 0


def names() -> list[Any]:
    return [Name(f"c{number}") for number in range(COLUMNS)]


def test_of_a_file_of_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_rows, "spelled", Name)
    lines = [",".join(names()) + "\n", ",".join("1" * COLUMNS) + "\n"]
    plain_rows.plain_rows(lines, names(), "rows.csv")
    assert 0 < Name.compared < 20 * COLUMNS


def test_of_rows_that_lack_columns() -> None:
    refuse_absent(names(), names()[::-1])
    with pytest.raises(ValueError, match="write 'C1999' as 'c1999'"):
        refuse_absent([Name(name.upper()) for name in names()], names())
    assert 0 < Name.compared < 20 * COLUMNS


def test_that_are_there_once_as_of_a_query() -> None:
    assert repeated(names()) is None
    assert repeated([*names(), "c7"]) == "c7"
    assert Name.compared < 20 * COLUMNS


def test_of_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "spelled", Name)
    table_file.plain_names(pd.DataFrame([[1] * COLUMNS], columns=[*map(str, names())]), Path("rows.parquet"))
    assert Name.compared < 20 * COLUMNS
