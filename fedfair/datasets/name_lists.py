"""Names of columns in one text, separated by commas; a name that holds a comma stands in double quotes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable


def names_in(text: str) -> list[str]:
    """Return the names in a text such as `age,"Sex, as recorded"`."""
    rows = csv.reader([text], skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def as_text(names: Iterable[str]) -> str:
    """Return names as the text from which `names_in` returns them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()
