"""Tables of epsilons, and others, as HTML for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedfair.accounting.figures import up

if TYPE_CHECKING:
    import pandas as pd


def shown(epsilon: float) -> str:
    """Write an epsilon rounded up, or "none" where nothing is promised.

    Args:
        epsilon: Figure.
    """
    return up(epsilon, ".3f") if math.isfinite(epsilon) else "none"


def epsilons(first: str, columns: Mapping[str, Mapping[Any, float]]) -> pd.DataFrame:
    """Lay out epsilons, as text.

    Args:
        first: Heading of the names.
        columns: Epsilons by heading, then by name (a text); each has the same names.
    """
    import pandas as pd  # here, as a ledger is often imported and seldom shown

    written = {heading: {name: shown(value) for name, value in by_name.items()} for heading, by_name in columns.items()}
    return pd.DataFrame(written).rename_axis(first).reset_index()


def as_html(title: str, tables: Sequence[pd.DataFrame], notes: Sequence[str]) -> str:
    """Return HTML in which no name from the data can become markup.

    Args:
        title: What the tables show.
        tables: Their cells are shown as they are.
        notes: Sentences below them.
    """
    drawn = [table.to_html(index=False, border=0) for table in tables]
    said = [f"<p>{escape(note)}</p>" for note in notes]
    return "\n".join([f"<p><b>{escape(title)}</b></p>", *drawn, *said])
