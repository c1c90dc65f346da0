"""Tables as CSV that a spreadsheet may open: names from data are not taken for formulas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from fedfair.datasets.names import from_spreadsheet_cell, spreadsheet_cell


def to_csv(frame: pd.DataFrame) -> str:
    """Write a table without its index; text that starts like a formula gets an apostrophe in front."""
    return _mapped(frame, spreadsheet_cell).to_csv(index=False)


def from_csv(path: Path) -> pd.DataFrame:
    """Read a table that `to_csv` wrote, with the names as they were."""
    return _mapped(pd.read_csv(path), from_spreadsheet_cell)


def _mapped(frame: pd.DataFrame, change: Callable[[object], object]) -> pd.DataFrame:
    """Change the names of a table's columns, and the cells of those that are no numbers."""
    columns = [column if is_numeric_dtype(column) else column.map(change) for _, column in frame.items()]
    changed = pd.concat(columns, axis=1) if columns else frame
    return changed.rename(columns=change)
