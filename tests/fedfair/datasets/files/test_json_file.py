"""A file of JSON is read record by record: none changes how another is read, or whether there is a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedfair.datasets.files.row_file import refuse_nested
from fedfair.datasets.files.table_file import read_table
from tests.for_each import for_each

RECORDS = [{"n": number, "c": f"c{number}"} for number in range(4)]
STRANGE = {"an empty line": b"", "a number": b"5", "nothing": b"null", "a list": b"[1]", "no record": b"{}",
           "a list in a cell": b'{"n": [1], "c": "x"}', "a record in a cell": b'{"n": {"a": 1}, "c": "x"}',
           "bytes that are no text": b'{"n": 1, "c": "\xff"}', "half of a sign": b'{"n": 1, "c": "\\ud800"}',
           "many digits": b'{"n": 1' + b"0" * 9000 + b', "c": "x"}', "no number": b'{"n": NaN, "c": "x"}',
           "a name with spaces": b'{" n ": 1, "c": "x"}', "a name that is there twice": b'{"n": 1, " n ": 2, "c": "x"}',
           "a carriage return": b'{"n": 1,\r "c": "x"}', "a line separator": '{"n": 1, "c": "\u2028"}'.encode()}
BROKEN = {"a bracket": b"[", "a brace": b"{", "an open quote": b'{"n": "', "nested deep": b"[" * 100_000}


def table(path: Path, records: list[bytes], as_list: bool) -> list[list[object]]:
    """Write records as a list or in lines, and return the cells that are read."""
    path.write_bytes(b"[" + b",\n ".join(records) + b"]\n" if as_list else b"\n".join(records) + b"\n")
    return read_table(path).frame[["n", "c"]].astype(object).to_numpy().tolist()  # type: ignore[no-any-return]


@for_each("as_list", [False, True])
@for_each("place", [0, 1, 3])
@for_each("name", [*STRANGE, *BROKEN])
def test_a_strange_record_changes_no_other(name: str, place: int, as_list: bool, tmp_path: Path) -> None:
    lines = [json.dumps(record).encode() for record in RECORDS]
    lines[place] = {**STRANGE, **BROKEN}[name]
    if as_list and name in {*BROKEN, "an empty line"}:
        with pytest.raises(ValueError, match="cannot be read as json"):
            table(tmp_path / "own.json", lines, as_list)
        return
    for ending in ("json", "jsonl"):
        cells = table(tmp_path / f"own.{ending}", lines, as_list)
        assert len(cells) == len(RECORDS)
        others = [row for row in range(len(RECORDS)) if row != place]
        assert [cells[row] for row in others] == [[*RECORDS[row].values()] for row in others]


@for_each("twice", ['{"n": 1, "n": 2}', '{"n": 1, " n": 1}', '{"n": 1, "n": null, "n": 3}'])
def test_a_name_that_is_there_twice_in_a_record_has_no_single_value(twice: str, tmp_path: Path) -> None:
    for file, text in (("new.json", f'[{{"n": 5}}, {twice}]'), ("new.jsonl", f'{{"n": 5}}\n{twice}\n')):
        (tmp_path / file).write_text(text)
        assert read_table(tmp_path / file).frame["n"].isna().tolist() == [False, True]
        refuse_nested(tmp_path / file, ["other"])
        with pytest.raises(ValueError, match=rf"column 'n' has two values in row 2 of .*{file}, where the model needs"):
            refuse_nested(tmp_path / file, ["n"])


def test_whole_numbers_stay_exact_and_marks_before_the_text_are_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text('[{"n": 12345678901234567}, {"n": null}]', encoding="utf-8-sig")
    assert read_table(tmp_path / "own.json").frame["n"].tolist()[0] == 12345678901234567


def test_a_file_without_records_is_refused(tmp_path: Path) -> None:
    for number, text in enumerate(("", "\n", "[]", '{"a": [1, 2]}')):
        (tmp_path / f"{number}.json").write_text(text)
        if text.startswith("{"):
            assert read_table(tmp_path / f"{number}.json").frame["a"].isna().all()  # one record, whose cell is a list
            continue
        with pytest.raises(ValueError, match="has no records"):
            read_table(tmp_path / f"{number}.json")
