"""Random tables in random conventions: they are read back equal, or refused; never as something else."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import reading_of, tidied
from fedfair.datasets.files.table_file import read_table

ROWS = 25
PACKED = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


class Convention(NamedTuple):
    """How a table is written."""

    separator: str
    decimal: str
    thousands: str
    quoting: Any
    encoding: str
    missing: str
    sign: str
    packed: str
    ends: str
    announced: bool
    behind: bool  # a minus, as SAP writes it


conventions = st.builds(
    Convention, separator=st.sampled_from(",;\t|"), decimal=st.sampled_from(".,"),
    thousands=st.sampled_from(["", "other", " ", "\u00a0", "'"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]), missing=st.sampled_from(["", "?", "NA"]),
    sign=st.sampled_from(["{}", "€{}", "{} €", "{}%", "$ {}"]), packed=st.sampled_from([*PACKED]),
    ends=st.sampled_from(["\n", "\r\n"]), announced=st.booleans(), behind=st.booleans())


class Truth(NamedTuple):
    """What is in a table: amounts, some of them missing, codes, and names."""

    amounts: list[float | None]
    places: int
    codes: list[str]
    names: list[str]


truths = st.builds(
    Truth,
    amounts=st.lists(st.one_of(st.none(), st.integers(-5_000_000, 5_000_000)), min_size=ROWS, max_size=ROWS),
    places=st.integers(0, 4), codes=st.lists(st.integers(0, 999).map("0{:03}".format), min_size=ROWS, max_size=ROWS),
    names=st.lists(st.sampled_from(["Málaga", "Köln", "San José, CA", "a;b|c", 'the "old" town', "O'Hara"]),
                   min_size=ROWS, max_size=ROWS))


def written(amount: float | None, places: int, how: Convention) -> str:
    """Write an amount, which is in units of the last place."""
    if amount is None:
        return how.missing
    other = "," if how.decimal == "." else "."
    text = f"{amount / 10**places:,.{places}f}"
    text = f"{text[1:]}-" if how.behind and amount < 0 and "%" not in how.sign else text
    mark = other if how.thousands == "other" else how.thousands
    return how.sign.format(text.replace(",", "T").replace(".", how.decimal).replace("T", mark))


def put(truth: Truth, how: Convention, folder: Path) -> Path:
    """Write a table in a convention."""
    lines = io.StringIO()
    writer = csv.writer(lines, delimiter=how.separator, quoting=how.quoting, lineterminator=how.ends)
    writer.writerow(["amount", "Straße, Nr", "code"])
    for amount, name, code in zip(truth.amounts, truth.names, truth.codes, strict=True):
        writer.writerow([written(amount, truth.places, how), name, code])
    first = f"sep={how.separator}{how.ends}" if how.announced else ""
    path = folder / f"table.csv{how.packed}"
    path.write_bytes(PACKED[how.packed]((first + lines.getvalue()).encode(how.encoding)))
    return path


def back(path: Path, asked: Asked) -> pd.DataFrame:
    """Read a table."""
    file = read_table(path, asked)
    return tidied(file.frame, reading_of(file.frame, asked, file.separator))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(truths, conventions, st.booleans())
def test_a_table_is_read_back_equal_or_refused(tmp_path: Path, truth: Truth, how: Convention, said: bool) -> None:
    path = put(truth, how, tmp_path)
    asked = Asked(encoding=how.encoding, decimal=(("", how.decimal),)) if said else Asked()  # type: ignore[arg-type]
    try:
        frame = back(path, asked)
    except ValueError as error:
        if said or not any(setting in str(error) for setting in ("decimal =", "encoding =", "separator =")):
            raise
        return
    assert list(frame) == ["amount", "Straße, Nr", "code"]
    assert frame["code"].tolist() == truth.codes
    assert frame["Straße, Nr"].tolist() == truth.names
    expected = [None if amount is None else amount / 10**truth.places for amount in truth.amounts]
    found = [None if pd.isna(amount) else float(amount) for amount in frame["amount"]]
    assert found == pytest.approx(expected)
