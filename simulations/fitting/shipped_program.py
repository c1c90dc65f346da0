"""What the program of a fit does: it reads a file of rows, and adds what its scorecard decides.

It needs the standard library alone: the program that a fit ships holds this file as it stands, with its own `MODEL`.
"""

from __future__ import annotations

import argparse
import codecs
import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfair.datasets.columns.cell import (
    Column,
    Doubt,
    counted_as_missing,
    counted_as_other,
    refuse_absent,
    spreadsheet_cell,
    unreadable,
    without_values,
)
from fedfair.datasets.files.plain_rows import plain_rows

MODEL: dict[str, Any] = json.loads('{"classes": [], "constant": [], "columns": [], "scores": {}, "encoding": null}')
COLUMNS = [Column(**{**column, "known": column["known"] and tuple(column["known"]),
                     "missing": frozenset(column["missing"]), "words": frozenset(column["words"])})
           for column in MODEL["columns"]]
"""How the cells of each column are read."""

_MARKED = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
           (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def read(rows: Sequence[Mapping[str, object]], unread: str = "refuse") -> tuple[list[dict[str, Any]], list[str]]:
    """Return what the cells of rows mean to the model, which is what its ONNX form takes, and what is to be said.

    Args:
        rows: Values by column, each a text, a number, a truth value, or None where it is missing.
        unread: What a cell is that must be a number and is none: "refuse" or "missing".

    Returns:
        By column the number, NaN where it is missing, or the category, None for none that the model knows; and a
            sentence for each column with values that count as missing or as another category.

    Raises:
        ValueError: If a column is absent, or a cell that must be a number is none; the message says which.
    """
    found: list[dict[str, Any]] = [{} for _ in rows]
    said, refused = [], []
    for column in COLUMNS:
        doubts = []
        for number, (row, meant) in enumerate(zip(rows, found), 1):  # noqa: B905 (Python 3.9 has no `strict`)
            if column.name not in row:
                refuse_absent([*row], [each.name for each in COLUMNS])
            cell = row[column.name]
            value = column.number(cell) if column.known is None else column.category(cell)
            if value is None:
                doubts.append(Doubt(number, cell))
                value = math.nan if column.known is None else column.unknown
            meant[column.name] = value
        if doubts and column.known is None and unread == "refuse":
            refused.append(unreadable(column, doubts))
        elif doubts:
            said.append((counted_as_missing if column.known is None else counted_as_other)(column, doubts, len(rows)))
    if refused:
        raise ValueError("; ".join(refused))
    empty = [number for number, row in enumerate(rows, 1) if all(each.is_missing(row[each.name]) for each in COLUMNS)]
    if empty and COLUMNS:
        said.append(without_values(empty, len(rows)))
    return found, said


def added(meant: Mapping[str, Any]) -> list[float]:
    """Return the score of each class for a row as `read` returns it."""
    total = list(MODEL["constant"])
    for column in COLUMNS:
        value, scores = meant[column.name], MODEL["scores"][column.name]
        if column.known is not None:
            own = scores.get(value)
        elif value != value:
            own = scores["missing"]
        else:
            own = scores["bins"][sum(value >= end for end in scores["ends"])]
        if own is not None:
            total = [a + b for a, b in zip(total, own)]  # noqa: B905
    return total


def scores(row: Mapping[str, object]) -> list[float]:
    """Return the score of each class for a row; raise `ValueError` for one that cannot be read."""
    return added(read([row])[0][0])


def predict(row: Mapping[str, object]) -> str:
    """Return the class of the largest score; raise `ValueError` for a row that cannot be read."""
    return _decided(scores(row))


def probabilities(row: Mapping[str, object]) -> dict[str, float]:
    """Return the probability of each class; raise `ValueError` for a row that cannot be read."""
    found = scores(row)
    powers = [math.exp(score - max(found)) for score in found]
    return {name: power / sum(powers) for name, power in zip(MODEL["classes"], powers)}  # noqa: B905


def _decided(found: Sequence[float]) -> str:
    """Return the class of the largest score."""
    return str(MODEL["classes"][found.index(max(found))])


def _lines(path: Path) -> Iterator[str]:
    """Return the lines of a file in UTF-8, in what its byte order mark names, or in the encoding of the training.

    Raises `ValueError` if it is in none of these.
    """
    content = path.read_bytes()
    marked = next((name for mark, name in _MARKED if content.startswith(mark)), None)
    for encoding in filter(None, [marked] if marked else ["utf-8", MODEL["encoding"]]):
        try:
            text = content.decode(encoding)
        except UnicodeError:
            continue
        if "\0" not in text:
            return iter(io.StringIO(text, newline=None))
    raise ValueError(f"{path} is not text in UTF-8: save it as CSV in UTF-8")


def main() -> None:
    """Print the rows of a file with what the model decides; end with 2 and a sentence if that cannot be done."""
    parser = argparse.ArgumentParser(description="Add the column \"predicted\" to the rows of a CSV file.")
    parser.add_argument("rows", help="CSV file with the columns that the model was trained on")
    parser.add_argument("--unreadable", choices=["refuse", "missing"], default="refuse",
                        help="what a cell is that must be a number and is none (refuse)")
    given = parser.parse_args()
    try:
        names, lines = plain_rows(_lines(Path(given.rows)), [column.name for column in COLUMNS], given.rows)
        if "predicted" in names:
            raise ValueError("the rows have a column 'predicted' already: give it another name")
        found, said = read([dict(zip(names, line)) for line in lines], given.unreadable)  # noqa: B905
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    for sentence in said:
        print(sentence, file=sys.stderr)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*names, "predicted"])
    writer.writerows([*line, spreadsheet_cell(_decided(added(meant)))] for line, meant in zip(lines, found))  # noqa: B905


if __name__ == "__main__":
    main()
