"""A file of a table that was cut, is empty, or is of another kind than its name says is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedfair.datasets.files.chunks import chunks_of
from fedfair.datasets.files.table_file import read_table

NESTED = "[" * 5000 + "]" * 5000
ROWS = pd.DataFrame({"age": range(300), "sex": ["f", "m", "m"] * 100})


def refuse_by_both_readers(path: Path) -> None:
    """Assert that a file is refused by its name, read at once and in chunks."""
    with pytest.raises(ValueError, match=path.name):
        read_table(path)
    with pytest.raises(ValueError, match=path.name):
        [*chunks_of(path).frames()]


@pytest.mark.parametrize("kind", ["xlsx", "parquet", "feather", "csv.gz"])
def test_a_file_that_was_cut_or_is_another_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    write = {"xlsx": ROWS.to_excel, "parquet": ROWS.to_parquet, "feather": ROWS.to_feather, "csv.gz": ROWS.to_csv}[kind]
    write(path, **({} if kind == "feather" else {"index": False}))
    whole = path.read_bytes()
    for content in (whole[:len(whole) // 2], b"", b"age,sex\n" if kind != "csv.gz" else whole[:20]):
        path.write_bytes(content)
        refuse_by_both_readers(path)


def test_a_damaged_member_of_a_workbook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.xlsx"
    ROWS.to_excel(path, index=False)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3:len(whole) // 3 + 400] = bytes(400)
    path.write_bytes(whole)
    refuse_by_both_readers(path)


def test_json_that_is_nested_too_deep_is_refused_or_a_row_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    for text in (NESTED, f'[{{"age": {NESTED}}}]'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"rows\.json cannot be read as json \(it is nested too deep\)"):
            read_table(path)
    path.write_text(f'{{"age": 1, "sex": "f"}}\n{{"age": {NESTED}}}\n')
    assert read_table(path).frame["sex"].isna().tolist() == [False, True]
