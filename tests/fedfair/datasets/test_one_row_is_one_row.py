"""One row is one row: what a row holds changes neither how others are read nor the part that they are dealt to."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fedfair.datasets.columns.convention import Asked, Quantity
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.datasets.features.kept_table import kept_table
from fedfair.datasets.files.chunks import chunks_of, one_chunk, read_files
from fedfair.datasets.files.csv_file import Layout
from fedfair.datasets.files.row_file import _row, frame_of
from fedfair.datasets.files.table_file import plain_values, read_table
from fedfair.datasets.schema import SchemaMismatch
from fedfair.datasets.split import Together, dealt, numbers_of_names, numbers_of_rows
from fedfair.protocol.task import Task
from simulations.fitting.kinds import _cells
from tests.for_each import for_each

CELLS = ["1", "2.5", "1,5", "1.234", "0,5", "", "?", "x", '24"', '"24', "'", "\\", '\\"', "a,b", "a;b", "\t", "é",
         "007", "12345678901234567", "true", "TRUE", "1e5", "-", "$5", "5%", '""', "a\\", "#", "sep=;", "2020-01-01",
         "no\udcff"]
"""Cells as files have them, some of which a reader may take for the convention of the whole file."""
TYPED: list[Any] = [None, 1, 2**60 + 1, 10**400, 1.5, 2.0, "1", "x", True, "0,5", "1.5"]
MOMENTS: list[Any] = [*TYPED, pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01 03:04"), "2020-01-01", "13:30",
                      "<0.5", "7 kg", pd.Timedelta(days=1, hours=2), datetime.time(13, 30), datetime.date(2020, 1, 1),
                      Decimal("1.50"), Decimal(2**60), pd.Timestamp("2020-01-01", tz="UTC")]
ASKED = [Asked(), Asked(decimal=(("", ","),)), *(Asked(quantities=(("n", kind),)) for kind in get_args(Quantity))]
QUICK = settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.generate))  # shrinking takes minutes
LINES = st.lists(st.sampled_from([*"".join(sorted({*"".join(CELLS)})), *',;"', "END"]), max_size=20).map("".join)
"""What is written into a line; END is what ends the lines of other files."""


def rows_of(path: Path, asked: Asked = ASKED[0]) -> pd.DataFrame:
    """Return the cells of a file as a fit reads them: numbers of `n`, and categories, with each row's place."""
    table = kept_table(chunks_of(path, asked, cells=40), reading_as_asked(asked), "y", ("n",), ("c", "y"))
    return pd.concat(table.columns("ncy"), axis=1)


def same_rows(one: pd.DataFrame, other: pd.DataFrame, changed: int) -> None:
    """Fail if rows differ but the changed one, or if another one is gone."""
    left, right = (frame.drop(index=changed, errors="ignore").astype({"c": "string", "y": "string"}) for frame in (
        one, other))
    pd.testing.assert_frame_equal(left, right)


@QUICK
@given(n=st.lists(st.sampled_from(CELLS[:6]), min_size=5, max_size=12), line=LINES, place=st.integers(0, 4),
       mark=st.sampled_from(",;\t|"), end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_a_line_of_text_changes_no_other(n: list[str], line: str, place: int, mark: str, end: str) -> None:
    """Whatever stands in the line of a record: quotes, separators, bytes that are no text, ends of other lines."""
    written = line.replace("END", "\n" if end == "\r" else "\r")
    plain = [value.replace(mark, ".") for value in n]
    lines = [mark.join(["n", "c", "y"]), *(mark.join([value, f"c{row}", "yes"]) for row, value in enumerate(plain))]
    with TemporaryDirectory() as folder:
        for name, content_ in (("a", lines), ("b", [*lines[:place + 1], f"x{written}", *lines[place + 2:]])):
            text = end.join([*content_, ""]).encode("utf-8", "surrogateescape")
            (Path(folder) / f"{name}.csv").write_bytes(text)
        same_rows(rows_of(Path(folder) / "a.csv"), rows_of(Path(folder) / "b.csv"), place)


@for_each(("encoding", "bytes_"), [("iso2022_jp", b"\x1b$B"), ("utf-7", b"+AA"), ("shift_jis", b"\x81"),
                                   ("gb18030", b"\x81\x30\x81"), ("utf-16", b"\x00\xd8"),
                                   ("utf-8", b"\xe2\x80"), ("cp1252", b"\x81"), ("utf-16", b"x"),
                                   ("utf-16-le", b"\n"), ("utf-16-be", b"\0"), ("utf-32-le", b"xyz"),
                                   ("utf-32-be", b"x"), ("cp500", b"\x0a")])
def test_what_is_no_text_in_an_encoding_changes_no_other_line(encoding: str, bytes_: bytes, tmp_path: Path) -> None:
    """Such as a sign after which the encoding reads all that follows in another way."""
    head, *lines = ["n,c,y\n", *(f"{row},c{row},yes\n" for row in range(5))]
    own = "utf-16-le" if encoding == "utf-16" else encoding
    for name, more in (("a", b""), ("b", bytes_)):
        parts = [line.encode(own) for line in lines]
        parts[2] = lines[2].removesuffix("\n").encode(own) + more + "\n".encode(own)
        (tmp_path / f"{name}.csv").write_bytes(head.encode(encoding) + b"".join(parts))
    asked = Asked(encoding=encoding)
    same_rows(rows_of(tmp_path / "a.csv", asked), rows_of(tmp_path / "b.csv", asked), 2)


@pytest.mark.parametrize(("encoding", "cell"), [("utf-16-le", "\u0a05\u4e00"), ("utf-16-be", "\u4e00\u0a05"),
                                                ("utf-32-le", "\u0a05\u4e00"), ("utf-32-be", "\u4e00\u0a05")])
def test_signs_whose_bytes_are_an_end_of_lines_make_two_empty_rows_and_change_no_other(encoding: str, cell: str,
                                                                                       tmp_path: Path) -> None:
    """The same bytes are a line with a byte too many, and its end: no reader is right for both."""
    lines = ["n,c,y\n", "1,a,yes\n", f"2,{cell},yes\n", "3,b,yes\n"]
    (tmp_path / "own.csv").write_bytes("".join(lines).encode(encoding))
    (frame,) = chunks_of(tmp_path / "own.csv", Asked(encoding=encoding)).frames()
    assert frame.to_numpy().tolist() == [["1", "a", "yes"], ["", "", ""], ["", "", ""], ["3", "b", "yes"]]


def changed(draw: st.DrawFn, cells: list[Any]) -> tuple[list[Any], list[Any], int]:
    """Draw a column of few kinds of cells, and one that differs in one row."""
    few = draw(st.lists(st.sampled_from(cells), min_size=1, max_size=3))
    values = draw(st.lists(st.sampled_from(few), min_size=4, max_size=8))
    place = draw(st.integers(0, 3))
    return values, [*values[:place], draw(st.sampled_from(cells)), *values[place + 1:]], place


@settings(QUICK, max_examples=30)
@given(st.data(), st.booleans(), st.sampled_from(ASKED))
def test_a_cell_of_json_changes_no_other(data: st.DataObject, lines: bool, asked: Asked) -> None:
    *columns, place = data.draw(st.composite(changed)(TYPED))
    tables = []
    with TemporaryDirectory() as folder:
        for cells in columns:
            records = [{"n": cell, "c": cell, "y": "yes"} for cell in cells]
            text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
            (Path(folder) / "own.json").write_text(text)
            tables.append(rows_of(Path(folder) / "own.json", asked))
    same_rows(*tables, place)


NODE = """source = "code book"
label = "y"
group = "sex"
[ranges]
n = [0, 10]
[categories]
c = ["a", "b"]
sex = ["f", "m"]
y = ["no", "yes"]
"""


def of_node(path: Path, schema: Path, **more: Any) -> dict[int, tuple[Any, ...]] | None:
    """Return part, features, class and group of each record that a node reads, by its place; None if it refuses."""
    try:
        data = Task(partition="nodes", schema_file=str(schema), missing="drop", **more).at_node(str(path), 3).data()
    except SchemaMismatch:
        return None
    return {row: (part, *records.x[place].tolist(), int(records.y[place]), int(records.group[place]))
            for part, records in data for place, row in enumerate(records.records.tolist())}


@settings(QUICK, max_examples=60)
@given(data=st.data(), mark=st.sampled_from(",;\t"), column=st.sampled_from(["n", "c", "sex", "y"]),
       more=st.sampled_from([{}, {"duplicates": "together"}]), suffix=st.sampled_from(["csv", "parquet"]))
def test_a_cell_of_a_nodes_file_changes_no_other_record(data: st.DataObject, mark: str, column: str,
                                                        more: dict[str, Any], suffix: str) -> None:
    """Nor whether another is dealt to the training part. The node may refuse the file, which its owner alone hears."""
    draws = np.random.default_rng(data.draw(st.integers(0, 9)))
    frame = pd.DataFrame({"n": draws.integers(0, 10, 12).astype(str), "c": draws.choice(["a", "b"], 12),
                          "sex": draws.choice(["f", "m"], 12), "y": draws.choice(["no", "yes"], 12)})
    place = data.draw(st.integers(0, 11))
    cell = data.draw(st.sampled_from([*CELLS[:-1], *frame[column].unique()])).replace(mark, ".")
    other, read = frame.assign(**{column: frame[column].where(frame.index != place, cell)}), []
    with TemporaryDirectory() as folder:
        (schema := Path(folder) / "study.toml").write_text(NODE)
        for name, table_ in (("a", frame), ("b", other)):
            path = Path(folder) / f"{name}.{suffix}"
            if suffix == "csv":
                lines = [mark.join(row) for row in [[*table_], *table_.to_numpy().tolist()]]
                path.write_text("\n".join([*lines, ""]))
            else:
                table_.to_parquet(path)
            read.append(of_node(path, schema, **more))
    before, after = read
    assert before is not None
    if after is not None:
        assert {row: record for row, record in before.items() if row != place} == {
            row: record for row, record in after.items() if row != place}


def test_a_record_decides_no_other_s_participant(tmp_path: Path) -> None:
    """A name among numbers made two people of 1 and 1.0, who were one."""
    found = []
    for last in ("2", "ann"):
        frame = pd.DataFrame({"n": range(60), "sex": ["f", "m"] * 30, "y": ["no", "no", "yes"] * 20,
                              "who": [*(["1", "1.0", "2"] * 20)[:-1], last]})
        frame.to_csv(tmp_path / "own.csv", index=False)
        held = Task(csv=str(tmp_path / "own.csv"), label="y", group="sex", participant="who",
                    ranges={"n": [0, 60]}, categories={}).data()
        rows = torch.cat([part.records for _, part in held])
        found.append(torch.cat([part.participant for _, part in held])[rows.argsort()].tolist()[:-1])
    assert len({*zip(*found, strict=True)}) == len({*found[0]}) == len({*found[1]})


@settings(QUICK, max_examples=40)
@given(st.data(), st.sampled_from(ASKED))
def test_a_cell_of_a_workbook_changes_no_other(data: st.DataObject, asked: Asked) -> None:
    """Of which a column holds what its cells are: numbers, texts, truth values, moments. So do the counts of kinds."""
    *columns, place = data.draw(st.composite(changed)(MOMENTS))
    tables, counted = [], []
    for cells in columns:
        column = plain_values(pd.Series(cells, dtype=object))
        frame = pd.DataFrame({"n": column, "c": column, "y": "yes"})
        table = kept_table(one_chunk(frame), reading_as_asked(asked), "y", ("n",), ("c", "y"))
        tables.append(pd.concat(table.columns("ncy"), axis=1))
        counted.append(np.array(_cells(column.rename("n"), reading_as_asked(asked), False)))
    same_rows(*tables, place)
    assert np.abs(counted[0] - counted[1]).sum() <= 2


@for_each("suffix", ["parquet", "feather", "xlsx"])
@for_each("other", [None, 3])
def test_a_missing_value_changes_no_other(suffix: str, other: int | None, tmp_path: Path) -> None:
    large = 2**50 if suffix == "xlsx" else 12345678901234567
    for name, cell in (("a", 7), ("b", other)):
        column = pd.array([large, cell, 2, large + 1], dtype="Int64")
        frame = pd.DataFrame({"n": column, "c": column, "y": ["yes", "no"] * 2})
        path = tmp_path / f"{name}.{suffix}"
        frame.astype(object).to_excel(path, index=False) if suffix == "xlsx" else getattr(frame, f"to_{suffix}")(path)
    same_rows(rows_of(tmp_path / f"a.{suffix}"), rows_of(tmp_path / f"b.{suffix}"), 1)
    assert rows_of(tmp_path / f"b.{suffix}")["c"].tolist()[0] == str(large)


@QUICK
@given(rows=st.lists(st.lists(st.sampled_from([*CELLS[:12], " a", "a ", "é", ""]), min_size=3, max_size=3), min_size=1,
                     max_size=6))
def test_lines_are_split_by_pandas_as_one_by_one(rows: list[list[str]]) -> None:
    lines, layout = [";".join(row) for row in rows], Layout(";")
    slowly = [row if (row := _row(line, layout, 3)) else ["", "", ""] for line in lines]
    assert frame_of(lines, layout, ["a", "b", "c"]).to_numpy().tolist() == slowly


def table(records: int, draws: np.random.Generator) -> pd.DataFrame:
    """Return a table with few kinds of rows, and persons with several."""
    return pd.DataFrame({"x": draws.choice(["a", "b", "c"], records), "n": draws.integers(0, 5, records),
                         "who": draws.choice([f"p{n}" for n in range(records // 3)], records),
                         "sex": draws.choice(["f", "m"], records), "y": draws.choice(["no", "yes"], records)})


@pytest.mark.parametrize(("settings_", "tie"), [({}, None), ({"participant": "who"}, "who"),
                                               ({"duplicates": "together"}, "all")])
def test_a_row_is_dealt_by_itself(settings_: dict[str, Any], tie: str | None, tmp_path: Path) -> None:
    """One label emptied, one category that no other row has: every other row stays in its part."""
    frame = table(400, np.random.default_rng(0)).drop(columns=[] if tie == "who" else "who")
    parts = []
    for name, place, column, value in (("a", 0, "x", frame["x"][0]), ("b", 7, "y", ""), ("c", 9, "x", "aa")):
        frame.assign(**{column: frame[column].where(frame.index != place, value)}).to_csv(tmp_path / f"{name}.csv",
                                                                                          index=False)
        data = Task(csv=str(tmp_path / f"{name}.csv"), label="y", group="sex", missing="keep", features="binned",
                    preprocessing="private", numbers=("n",), **settings_).data()
        parts.append({row: part for part, records in data for row in records.records.tolist()})
    for other in parts[1:]:
        assert {row: part for row, part in other.items() if row not in (7, 9)} == {
            row: part for row, part in parts[0].items() if row not in (7, 9)}
    if tie is not None:
        of = frame[["who"] if tie == "who" else [*frame]].astype(str).agg(" ".join, axis=1)
        assert pd.Series(parts[0]).groupby(of).nunique().eq(1).all()


def test_shares_are_those_that_were_asked_for_and_rows_are_dealt_independently() -> None:
    """Over seeds: a share of 0.7 within four deviations; rows next to each other are in one part by chance alone."""
    data = Task(imbalance=None).data().train
    numbers, seeds = len(data), 60
    parts = torch.zeros(seeds, numbers)
    for seed in range(seeds):
        first, _, _ = dealt(data, (0.7, 0.1), seed, Together(participants=False))
        parts[seed, first] = 1
    deviation = (0.7 * 0.3 / parts.numel()) ** 0.5
    assert abs(float(parts.mean()) - 0.7) < 4 * deviation
    pairs = (parts[:, 1:] * parts[:, :-1]).mean() - 0.49
    assert abs(float(pairs)) < 6 * deviation
    assert float(parts.mean(0).std()) == pytest.approx((0.7 * 0.3 / seeds) ** 0.5, rel=0.15)


def test_the_number_of_a_name_and_of_a_row_follow_from_it_alone() -> None:
    assert numbers_of_names(pd.Series(["b", "a", "b"]))[[0, 2]].unique().numel() == 1
    frame = table(60, np.random.default_rng(1)).astype({"x": "category"})
    other = frame.assign(x=frame["x"].astype(str).where(frame.index != 3, "aaa").astype("category"))
    differs = numbers_of_rows(map(frame.get, frame)) != numbers_of_rows(map(other.get, other))
    assert differs.nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize("again", ["n,c,y", " n, c,y ", '"n","c","y"', "N,C,y"])
def test_a_line_that_repeats_the_names_is_an_empty_row(again: str, tmp_path: Path) -> None:
    """Files that were put together by `cat` have such lines, which made classes and groups of their own."""
    (tmp_path / "own.csv").write_text(f"n,c,y\n1,a,yes\n{again}\nn,c,no\n")
    (tmp_path / "without.csv").write_text("n,c,y\n1,a,yes\n\nn,c,no\n")
    same_rows(rows_of(tmp_path / "own.csv"), rows_of(tmp_path / "without.csv"), 0)
    assert read_table(tmp_path / "own.csv").frame.to_numpy().tolist() == [["1", "a", "yes"], ["n", "c", "no"]]


@pytest.mark.parametrize("suffix", ["xlsx", "jsonl", "parquet", "feather"])
def test_a_row_that_repeats_the_names_is_an_empty_row_of_any_format(suffix: str, tmp_path: Path) -> None:
    """Or is left out, with a warning, where no row is protected."""
    texts = [["1", "a", "yes"], ["n", "C", "y"], ["n", "c", "no"]]
    for name, rows in (("own", texts), ("without", [texts[0], [None] * 3, texts[2]])):
        frame, path = pd.DataFrame(rows, columns=["n", "c", "y"]), tmp_path / f"{name}.{suffix}"
        {"xlsx": partial(frame.to_excel, index=False), "jsonl": partial(frame.to_json, orient="records", lines=True),
         "parquet": frame.to_parquet, "feather": frame.to_feather}[suffix](path)
    same_rows(rows_of(tmp_path / f"own.{suffix}"), rows_of(tmp_path / f"without.{suffix}"), 1)
    assert read_files(tmp_path / f"own.{suffix}").frame.to_numpy().tolist() == [texts[0], texts[2]]
