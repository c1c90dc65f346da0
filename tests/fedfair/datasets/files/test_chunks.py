"""Tables that are read in chunks: the same records, to the last bit, as if they were read whole."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from fedfair.datasets.columns.convention import PLAIN, Asked
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.datasets.columns.written_numbers import numbers
from fedfair.datasets.features.encoder import kept
from fedfair.datasets.files.chunks import chunks_of, one_chunk, read_files, read_rows
from fedfair.datasets.files.part_files import table_name
from fedfair.datasets.files.table_file import read_table
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.table import from_chunks, from_csv
from fedfair.protocol.task import Task
from tests.for_each import for_each

NUMBERS = ["1", "2.5", "1,5", "1.234", "1.234,5", "x", "", "(5)", "$5", "5%", "-0", "0", "007", "1e5", "inf", "1e400",
           "unknown", "?", "12345678901234567", "9007199254740993"]
NAMES = ["a", "b", "A", "a  b", " a", "é", "e\u0301", "", "NA", "1", "1.0", "01", "missing", "other", "True", 'say "x"',
         "it's", "a;b,c", "\\"]
LABELS = [["0", "1"], ["yes", "no", ""], ["1.0", "0"], ["01", "2"], ["1", "x"], ["a", "?"]]
LARGE = 2**53 + 1  # no double
TYPED: list[list[Any]] = [
    [True, False], [True, None], [1, 2, LARGE], [1, 2, LARGE, None], [1.5, -0.0, float("inf"), None],
    [datetime.date(2020, 1, 1), None], [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01 03:00"), pd.NaT],
    [decimal.Decimal("1.5"), decimal.Decimal("2.0"), None], [datetime.time(13, 30), None],
    [pd.Timestamp("2020-01-01", tz="Europe/Berlin"), None], ["a", "b", None],
    [pd.Timedelta(days=1), pd.Timedelta(hours=1)]]
ASKED = [Asked(), Asked(capitals="same"), Asked(missing_marks=("a", "1")), Asked(decimal=(("", ","),))]


def columns(draw: st.DrawFn, values: list[Any]) -> pd.DataFrame:
    """Draw a table with labels, groups, sites, people, numbers, names, and a column of some values."""
    rows = draw(st.integers(4, 25))

    def of(choices: list[Any]) -> list[Any]:
        """Draw a value for each row."""
        return draw(st.lists(st.sampled_from(choices), min_size=rows, max_size=rows))

    return pd.DataFrame({
        "number": of(NUMBERS), "name": of(NAMES), "other": of(values),
        "y": ["1", "0", *of(draw(st.sampled_from(LABELS)))[2:]], "sex": ["f", "m", *of(["f", "m", ""])[2:]],
        "site": ["u", "v", *of(["u", "w"])[2:]], "who": of(["p", "q", "r"]), "weight": of(["1", "2.5"])})


@st.composite
def texts(draw: st.DrawFn) -> pd.DataFrame:
    """Draw a table of text."""
    return columns(draw, NAMES)


@st.composite
def typed(draw: st.DrawFn) -> pd.DataFrame:
    """Draw a table with a column of another type."""
    return columns(draw, draw(st.sampled_from(TYPED)))


def same(one: GroupedDataset, other: GroupedDataset) -> bool:
    """Return whether two data sets are the same to the last bit."""
    tensors = [(getattr(one, name), getattr(other, name)) for name in ("y", "group", "participant", "weight", "site")]
    bits = all(torch.equal(a, b) for a, b in tensors)
    return bits and one.x.clone().numpy().tobytes() == other.x.clone().numpy().tobytes() and (
        one.encoding, one.names, one.labels, one.sites) == (other.encoding, other.names, other.labels, other.sites)


def read_both_ways(path: Path, asked: Asked, cells: int, numeric: tuple[str, ...] | None
                   ) -> tuple[GroupedDataset | str, GroupedDataset | str]:
    """Return the records of a file that is read in chunks, and read whole; or what is said against them."""
    whole = read_table(path, asked)

    def made(of: Callable[[], Any]) -> GroupedDataset | str:
        """Return the records of a table, or the error."""
        try:
            return from_chunks(of(), "y", "sex", "who", numbers=numeric, asked=asked, weight="weight", site="site")
        except ValueError as error:
            return str(error)

    return made(lambda: chunks_of(path, asked, cells)), made(lambda: one_chunk(whole.frame, whole.separator))


@settings(max_examples=15, deadline=None)
@given(frame=texts(), cells=st.integers(1, 80), asked=st.sampled_from(ASKED), separator=st.sampled_from(",;\t"),
       numeric=st.sampled_from([("number",), ("number", "other"), ()]))
def test_text_in_chunks_is_read_as_if_whole(frame: pd.DataFrame, cells: int, asked: Asked, separator: str,
                                            numeric: tuple[str, ...]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "own.csv"
        frame.to_csv(path, index=False, sep=separator)
        one, other = read_both_ways(path, asked, cells, numeric)
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
    else:
        assert same(one, other)


@settings(max_examples=15, deadline=None)
@given(frame=typed(), cells=st.integers(1, 80), asked=st.sampled_from(ASKED), compact=st.booleans(),
       numeric=st.sampled_from([("number",), ("number", "other"), ()]))
def test_parquet_in_chunks_is_read_as_if_whole(frame: pd.DataFrame, cells: int, asked: Asked, compact: bool,
                                               numeric: tuple[str, ...]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "own.parquet"
        (frame.astype({"name": "category"}) if compact else frame.convert_dtypes()).to_parquet(path)
        one, other = read_both_ways(path, asked, cells, numeric)
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
    else:
        assert same(one, other)


@for_each("suffix", ["parquet", "feather", "json", "jsonl", "xlsx"])
def test_a_code_of_many_digits_is_itself_whichever_other_is_missing(suffix: str, tmp_path: Path) -> None:
    large = 2**53 - 1 if suffix == "xlsx" else 12345678901234567  # a workbook has doubles
    for number, others in enumerate(([1, 2, large], [1, None, large])):
        frame = pd.DataFrame({"code": pd.array(others, dtype="Int64"), "y": [0, 1, 0]})
        path = tmp_path / f"{number}.{suffix}"
        if suffix in ("json", "jsonl"):
            frame.to_json(path, orient="records", lines=suffix == "jsonl")
        elif suffix == "xlsx":
            frame.astype(object).to_excel(path, index=False)
        else:
            getattr(frame, f"to_{suffix}")(path)
        (read,) = chunks_of(path).frames()
        assert kept(read["code"], reading_as_asked(Asked())).tolist() == [
            "missing" if value is None else str(value) for value in others]


def test_a_chunk_has_few_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(10), "b": range(10)})
    frame.to_csv(tmp_path / "own.csv", index=False)
    frame.to_parquet(tmp_path / "own.parquet")
    for name in ("own.csv", "own.parquet"):
        chunks = chunks_of(tmp_path / name, cells=6)
        for _ in range(2):  # they are read as often as they are wanted
            assert [len(chunk) for chunk in chunks.frames()] == [3, 3, 3, 1]


def test_a_row_with_too_many_values_is_a_row_of_empty_cells_wherever_a_chunk_ends(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,b\n" + "1,2\n" * 9 + "1,2,3\n")
    for rows in range(1, 11):
        whole = pd.concat(chunks_of(tmp_path / "own.csv", cells=2 * rows).frames(), ignore_index=True)
        assert whole.iloc[:9].eq(["1", "2"]).all().all()
        assert whole.iloc[9].tolist() == ["", ""]


def test_a_type_that_cannot_be_read_in_chunks_is_read_whole_and_said(tmp_path: Path,
                                                                     caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame({"a": range(10), "wait": [b"x"] * 10})
    frame.to_parquet(tmp_path / "own.parquet")
    chunks = chunks_of(tmp_path / "own.parquet", cells=2)
    assert [len(chunk) for chunk in chunks.frames()] == [10]
    assert "is read whole, since its column 'wait' holds values of the type binary" in caplog.text


def test_several_files_are_one_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"number": range(12), "name": [*"abcabcabcabc"], "sex": ["f", "m"] * 6, "y": [0, 1, 1] * 4})
    frame.to_csv(tmp_path / "whole.csv", index=False)
    for ending, folder in (("csv", tmp_path / "texts"), ("parquet", tmp_path / "typed")):
        folder.mkdir()
        for number in range(3):
            part = frame[4 * number:4 * number + 4][[*frame][:: -1 if number == 1 else 1]]  # in another order
            if ending == "csv":
                part.to_csv(folder / f"part-{number}.csv", index=False)
            else:
                part.astype({"y": "float" if number == 2 else "int"}).to_parquet(folder / f"part-{number}.parquet")
        (folder / "_SUCCESS").touch()
        whole = from_csv(tmp_path / "whole.csv", "y", "sex", "keep", numbers=("number",))
        for named in (folder, folder / f"part-*.{ending}"):
            assert same(from_csv(named, "y", "sex", "keep", numbers=("number",)), whole)


def test_files_with_other_columns_are_refused_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "2.csv").write_text("a,c\n1,2\n3,4\n")
    (tmp_path / "3.csv").write_text("a;b\n1;2\n3;4\n")
    with pytest.raises(ValueError, match=r"2.csv has the columns c, which .*1.csv does not and lacks the columns b of"):
        chunks_of(tmp_path / "*.csv")
    with pytest.raises(ValueError, match=r"separated by ';' in .*3.csv, but by ',' in .*1.csv: write the files in one"):
        chunks_of(tmp_path / "[13].csv")
    pd.DataFrame({"a": [1], "b": [2]}).to_parquet(tmp_path / "4.parquet")
    with pytest.raises(ValueError, match=r"separated by the file's format in .*4.parquet, but by ',' in .*1.csv"):
        chunks_of(tmp_path / "[14].*")


def test_no_file_is_refused(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "has no file: name a file"), (tmp_path / "*.csv", "no file is like .*: name a file"),
                       (tmp_path / "own.csv", "there is no file")):
        with pytest.raises(FileNotFoundError, match=said):
            chunks_of(path)


def test_a_table_is_named_by_its_file_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for path, name in (("parts", "parts"), ("parts/*.csv", "parts"), ("parts/*/x.csv", "parts"), ("own.csv", "own")):
        assert table_name(tmp_path / path) == name
    assert table_name(Path("*.csv")) == "table"


@pytest.mark.parametrize("mark", [".", ","])
def test_no_text_decides_how_another_is_read_where_missing_values_are_kept(mark: Any) -> None:
    texts = pd.Series(NUMBERS, dtype="string")
    together = numbers(texts, mark, None).astype("float64")
    alone = [float(numbers(texts[[row]], mark, None).astype("float64").iloc[0]) for row in texts.index]
    assert [*map(repr, together)] == [*map(repr, alone)]


@pytest.mark.parametrize("path", ["hired", "hired/*/*/*.parquet", "hired/*/job=nurse/*"])
def test_names_of_folders_are_columns(path: str, tmp_path: Path) -> None:
    for year, job in itertools.product((2023, 2024), ("nurse", "care%20worker", "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / "a=b" / "hired" / f"year={year}" / f"job={job}"
        folder.mkdir(parents=True)
        pd.DataFrame({"age": [year - 2000, 50]}).to_parquet(folder / "part-0.parquet")
    (tmp_path / "a=b" / "hired" / "_SUCCESS").write_text("")
    chunks = chunks_of(tmp_path / "a=b" / path)
    assert chunks.names == ["age", "year", "job"]
    rows = pd.concat(chunks.frames()).astype(str)
    jobs = ["nurse"] if "nurse" in path else ["", "care worker", "nurse"]
    expected = [[age, year, job] for year in ("2023", "2024") for job in jobs for age in (year[2:], "50")]
    assert rows.to_numpy().tolist() == expected


def test_a_column_of_the_file_is_not_replaced_by_its_folder_and_a_single_file_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "parts" / "sex=f"
    folder.mkdir(parents=True)
    pd.DataFrame({"age": [1], "sex": ["m"]}).to_parquet(folder / "a.parquet")
    assert [frame["sex"].tolist() for frame in chunks_of(tmp_path / "parts").frames()] == [["m"]]
    pd.DataFrame({"age": [1]}).to_parquet(folder / "a.parquet")
    assert chunks_of(folder / "a.parquet").names == ["age"]


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_whole_numbers_that_a_file_calls_categories_are_categories(suffix: str, tmp_path: Path) -> None:
    rows = pd.DataFrame({"ward": pd.Categorical([3, 1, 3, None] * 5), "age": range(20), "sex": ["f", "m"] * 10,
                         "hired": [0, 1, 1, 0, 0] * 4})
    getattr(rows, f"to_{suffix}")(tmp_path / f"own.{suffix}")
    assert chunks_of(tmp_path / f"own.{suffix}").listed == ("ward",)
    rows.drop(columns="ward").set_index(pd.CategoricalIndex(range(20))).to_parquet(tmp_path / "index.parquet")
    assert read_rows(tmp_path / "index.parquet").frame.shape == (20, 3)
    assert chunks_of(tmp_path / "index.parquet").listed == ()
    made = Task(csv=str(tmp_path / f"own.{suffix}"), label="hired", group="sex", missing="drop").data().train
    assert sorted(name for column, name in zip(made.columns, made.categories, strict=True) if column == "ward"
                  ) == ["1", "3"]


def test_types_of_arrow_in_pandas_are_read_as_those_of_pandas(tmp_path: Path) -> None:
    """The file says that its columns were of Arrow's own kind, and pandas makes them so again."""
    values: dict[Any, list[Any]] = {
        pa.date32(): [datetime.date(2020, 1, 1), None], pa.duration("s"): [pd.Timedelta(days=1), None],
        pa.decimal128(8, 2): [decimal.Decimal("1.50"), None], pa.time64("us"): [datetime.time(13), None],
        pa.timestamp("us"): [pd.Timestamp("2020-01-01 03:00"), None], pa.int64(): [LARGE, None],
        pa.dictionary(pa.int32(), pa.string()): ["north", None]}
    arrow = {str(kind): pd.array(cells, dtype=pd.ArrowDtype(kind)) for kind, cells in values.items()}
    plain = {str(kind): pd.Series(cells, dtype="Int64" if kind == pa.int64() else None)
             for kind, cells in values.items()}
    pd.DataFrame(arrow).to_parquet(tmp_path / "arrow.parquet")
    pd.DataFrame(plain).to_parquet(tmp_path / "plain.parquet")
    for whole in (True, False):
        one, other = (read_table(path).frame if whole else next(chunks_of(path).frames())
                      for path in (tmp_path / "arrow.parquet", tmp_path / "plain.parquet"))
        for name in arrow:
            assert kept(one[name], PLAIN).tolist() == kept(other[name], PLAIN).tolist(), name
            assert not isinstance(one[name].dtype, pd.ArrowDtype)


def test_a_stream_of_arrow_is_read_as_a_file_of_it(tmp_path: Path) -> None:
    """Hugging Face saves data sets so, beside two files that describe them, under the ending of Feather."""
    frame = pd.DataFrame({"n": [1, None, 3], "born": [datetime.date(2020, 1, 1)] * 3, "y": ["yes", "no", "no"]})
    table, saved = pa.Table.from_pandas(frame), tmp_path / "saved"
    saved.mkdir()
    feather.write_feather(table, tmp_path / "own.feather")
    for number in range(2):
        with pa.ipc.new_stream(str(saved / f"data-{number}.arrow"), table.schema) as stream:
            stream.write_table(table)
    for name in ("state", "dataset_info"):
        (saved / f"{name}.json").write_text("{}")
    expected = read_table(tmp_path / "own.feather").frame
    pd.testing.assert_frame_equal(read_table(saved / "data-0.arrow").frame, expected)
    for read in (pd.concat(chunks_of(saved).frames(), ignore_index=True), read_files(saved).frame):
        pd.testing.assert_frame_equal(read, pd.concat([expected] * 2, ignore_index=True))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["saved"]}')
    with pytest.raises(ValueError, match=r"holds the tables saved of a data set of Hugging Face: name one of them"):
        chunks_of(tmp_path)
    (saved / "data-1.arrow").write_bytes((saved / "data-0.arrow").read_bytes()[:200])
    with pytest.raises(ValueError, match=r"data-1.arrow cannot be read as arrow .* check that it was copied whole"):
        chunks_of(saved)


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_a_class_label_of_hugging_face_is_its_name(suffix: str, tmp_path: Path) -> None:
    """As the file declares; its numbers would be a quantity, and those without a name are missing."""
    declared = {"town": {"names": ["Bonn", "Ulm"], "_type": "ClassLabel"}, "age": {"dtype": "int64", "_type": "Value"}}
    about = {b"huggingface": json.dumps({"info": {"features": declared}}).encode()}
    table = pa.table({"town": pa.array([1, 0, -1, None, 1]), "age": pa.array([1, 0, 3, 4, 1])})
    {"parquet": pq.write_table, "feather": feather.write_feather}[suffix](
        table.replace_schema_metadata(about), tmp_path / f"own.{suffix}")
    for frame in (next(chunks_of(tmp_path / f"own.{suffix}").frames()), read_table(tmp_path / f"own.{suffix}").frame):
        assert [None if pd.isna(name) else name for name in frame["town"]] == ["Ulm", "Bonn", None, None, "Ulm"]
        assert frame["age"].tolist() == [1, 0, 3, 4, 1]


@for_each("suffix", ["parquet", "feather"])
@for_each("second", ["n", "n "])
def test_a_name_that_two_columns_have_is_told_by_every_reader(suffix: str, second: str, tmp_path: Path) -> None:
    path, table = tmp_path / f"own.{suffix}", pa.table([[1, 2], [3, 4]], names=["n", second])
    (pq.write_table if suffix == "parquet" else feather.write_feather)(table, path)
    for read in (read_table, chunks_of):
        with pytest.raises(ValueError, match=f"own.{suffix} names column 'n' more than once: give each column a name"):
            read(path)
