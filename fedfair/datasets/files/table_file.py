"""Reading a file with a table, whatever its format: text, Parquet, Feather, a workbook, JSON, or of a program."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile

import pandas as pd
from pandas.api.types import is_integer_dtype

from fedfair.datasets.columns.cell import repeated, spelled
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.files import workbook
from fedfair.datasets.files.csv_file import read_csv
from fedfair.datasets.files.row_file import JSON, read_json_table
from fedfair.datasets.files.survey_file import SUFFIXES, read_survey

_AS_ASKED = Asked()
_STREAM = b"\xff\xff\xff\xff"  # begins each message of Arrow
_UNREADABLE = (OSError, EOFError, KeyError, TypeError, ValueError, BadZipFile, zlib.error, ParseError)
"""What the readers of files raise, a workbook's among them, for one that was cut, or is of another kind."""


class TableFile(NamedTuple):
    """A table as its file holds it.

    Args:
        frame: Cells; text is not interpreted yet.
        separator: What separated values; None for a file that knows its values' types.
        described: What the file was taken for, in words.
        left_out: Number of rows that were left out, since they are empty or cannot be read.
    """

    frame: pd.DataFrame
    separator: str | None
    described: str
    left_out: int = 0


def read_table(path: Path, asked: Asked = _AS_ASKED) -> TableFile:
    """Read a table from a file; the end of its name says whether it is Parquet, Feather, a workbook, JSON, or of
    SPSS, Stata or SAS.

    Args:
        path: File.
        asked: What the user says of the file.

    Returns:
        The table.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read; the message names the setting that may mend it.
    """
    suffix = path.suffix.lower()
    workbook.refuse_header_row(path, asked)
    if is_text(path):
        frame, layout = read_csv(path, asked)
        return TableFile(frame, layout.separator, f"text, {layout}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if suffix in _OTHERS:
        raise ValueError(f"{path} is {_OTHERS[suffix]}, which fedfair does not read: save it as CSV, Parquet or .xlsx")
    try:
        if suffix in SUFFIXES:
            frame, described = read_survey(path, asked)
            return TableFile(_with_records(plain_names(frame, path), path), None, described)
        frame = _plain(_READERS[suffix](path, asked), path)
    except _UNREADABLE as error:
        if type(error) is ValueError and str(path) in str(error):
            raise
        raise _refused(path, error) from error
    return TableFile(frame, None, f"{suffix[1:]}, which knows the types of its columns")


def _refused(path: Path, error: Exception) -> ValueError:
    """Return the error for a file that is not of the kind that the end of its name says, by what its reader raised."""
    said = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return ValueError(f"{path} cannot be read as {path.suffix[1:].lower()} ({said}): check that it was copied whole, "
                      "and that the end of its name says what it is")


def is_text(path: Path) -> bool:
    """Return whether a file is read as text, by the end of its name.

    Args:
        path: File.
    """
    return path.suffix.lower() not in {*_READERS, *SUFFIXES, *_OTHERS}


def _parquet(path: Path, asked: Asked) -> pd.DataFrame:
    """Read a Parquet file."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:  # `read_table` has no words for a name that two columns have
        frame = of_arrow(_of_single_values(file.read(), path))
    return frame.astype({name: "category" for name in codes_of_parquet(path) if name in frame})  # no index


def codes_of_parquet(path: Path) -> list[str]:
    """Return the columns of which a Parquet file says that their whole numbers are codes of categories.

    Arrow writes the categories of pandas so; what reads the file gives plain numbers all the same.

    Args:
        path: File.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = (pq.read_metadata(path).metadata or {}).get(b"ARROW:schema")
    schema = pa.ipc.read_schema(pa.BufferReader(b64decode(kept))) if kept else ()
    return [field.name for field in schema
            if pa.types.is_dictionary(field.type) and pa.types.is_integer(field.type.value_type)]


def _feather(path: Path, asked: Asked) -> pd.DataFrame:
    """Read a Feather file, or a stream of Arrow, as Hugging Face's `save_to_disk` writes it under the same ending."""
    from pyarrow import feather, ipc, memory_map

    with path.open("rb") as file:
        is_stream = file.read(len(_STREAM)) == _STREAM
    if not is_stream:
        return of_arrow(_of_single_values(feather.read_table(path), path))
    with memory_map(str(path)) as file, ipc.open_stream(file) as stream:
        return of_arrow(_of_single_values(stream.read_all(), path))


def _of_single_values(table: Any, path: Path) -> Any:
    """Return a table of Arrow; raise `ValueError` if the type of a column, whatever its rows hold, is one of lists."""
    from pyarrow.types import is_nested

    for field in table.schema:
        if is_nested(field.type):
            raise ValueError(f"column {field.name!r} of {path} holds lists, not one value for each record: remove it")
    return table


def is_plain(kind: Any) -> bool:
    """Return whether pandas takes each value of a type for itself, whatever the others are.

    Args:
        kind: The type.
    """
    import pyarrow.types as types

    checks = (types.is_integer, types.is_float32, types.is_float64, types.is_boolean, types.is_string,
              types.is_large_string, types.is_string_view, types.is_timestamp, types.is_date, types.is_duration,
              types.is_time, types.is_decimal, types.is_null)
    if types.is_dictionary(kind):
        return bool(types.is_string(kind.value_type) or types.is_large_string(kind.value_type))
    return any(check(kind) for check in checks)


def of_arrow(table: Any) -> pd.DataFrame:
    """Return a table of Arrow as a DataFrame whose types follow from the table's types, whichever values are missing.

    Args:
        table: A `pyarrow.Table`.
    """
    import pyarrow as pa

    exact: dict[Any, Any] = {pa.bool_(): pd.BooleanDtype()}
    for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"):
        exact[getattr(pa, name.lower())()] = pd.api.types.pandas_dtype(name)  # doubles would round whole numbers
    plain = _without_own_types(_with_labels(table))
    frame: pd.DataFrame = plain.to_pandas(types_mapper=exact.get, date_as_object=False)
    return frame


def _with_labels(table: Any) -> Any:
    """Return a table of Arrow in which a class label of Hugging Face is the name that its file declares."""
    import pyarrow as pa
    import pyarrow.compute as pc

    written = (table.schema.metadata or {}).get(b"huggingface")
    features = json.loads(written).get("info", {}).get("features", {}) if written else {}
    for name, feature in features.items():
        names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
        if names and name in table.column_names and pa.types.is_integer(table.schema.field(name).type):
            numbers = table.column(name)
            known = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, len(names)))
            labels = pc.take(pa.array(names, pa.string()), pc.if_else(known, numbers, None))
            table = table.set_column(table.column_names.index(name), name, labels)
    return table


def _without_own_types(table: Any) -> Any:
    """Return a table of Arrow without what pandas wrote of its columns of Arrow's types, which the table declares."""
    written = (table.schema.metadata or {}).get(b"pandas")
    if written is None:
        return table
    described = json.loads(written)
    for column in described["columns"]:
        if str(column["numpy_type"]).endswith("[pyarrow]"):
            column["numpy_type"] = "object"
    return table.replace_schema_metadata({**table.schema.metadata, b"pandas": json.dumps(described).encode()})


def _json(path: Path, asked: Asked) -> pd.DataFrame:
    """Read a file of JSON."""
    return read_json_table(path)


_READERS: dict[str, Callable[[Path, Asked], pd.DataFrame]] = {
    ".parquet": _parquet, ".pq": _parquet, ".feather": _feather, ".arrow": _feather,
    **dict.fromkeys(workbook.SUFFIXES, workbook.read_workbook), **dict.fromkeys(JSON, _json)}

_OTHERS = {".xls": "an old workbook", ".ods": "a workbook of OpenDocument",
           ".sas7bcat": "a catalogue of SAS for another file", ".rds": "a file of R", ".rdata": "a file of R",
           ".pkl": "a pickle, which can run code", ".pickle": "a pickle, which can run code"}


def _plain(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table with values of plain types in columns with names; raise `ValueError` if it has no records."""
    frame = _with_records(plain_names(frame, path), path)
    return pd.DataFrame({name: plain_values(frame[name]) for name in frame}, index=frame.index)


def _with_records(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table; raise `ValueError` if it is empty."""
    if frame.empty:
        raise ValueError(f"{path} has no records")
    return frame


def plain_names(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a table with names of columns as text; an index is a column if it has a name.

    Args:
        frame: Table as it was read.
        path: Its file.

    Raises:
        ValueError: If two columns have one name.
    """
    frame = frame.reset_index(drop=frame.index.names == [None])
    names = [spelled(str(name)) for name in frame.columns]
    twice = repeated(names)
    if twice is not None:
        raise ValueError(f"{path} names column {twice!r} more than once: give each column a name of its own")
    return frame.set_axis(names, axis=1)


def plain_values(column: pd.Series) -> pd.Series:
    """Return a column as numbers, truth values or moments if all its values are, and else as it is.

    A value has the same name, and is the same number, whatever else the column holds: a whole number stays one, since
    doubles would round it beyond 2**53, and a moment among texts is written as one among moments is named.

    Args:
        column: Column as it was read.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        own = column.cat.categories
        if not is_integer_dtype(own.dtype):
            return column.astype(own.dtype)
        # They stay codes (`columns.tidy.listed`), whose names have no decimals although another one is missing.
        names = own.astype("UInt64" if own.dtype.kind == "u" else "Int64")
        return pd.Series(pd.Categorical.from_codes(column.cat.codes, names), column.index, name=column.name)
    if column.dtype != object:
        return column
    column = _without_types(column)
    known = column.dropna()
    kinds = {type(value) for value in known}
    if kinds == {int} and all(-2**63 <= value < 2**63 for value in known):
        return column.astype("Int64" if len(known) < len(column) else "int64")
    if kinds and kinds <= {int, float} and all(abs(value) <= 2**53 for value in known if isinstance(value, int)):
        return column.astype("float64")
    if len(kinds) <= 1 and not kinds <= {int, float}:
        return column.infer_objects()
    named = [value if missing else named_by_itself(value)
             for value, missing in zip(column, column.isna(), strict=True)]  # `map` would make doubles of whole numbers
    return pd.Series(named, column.index, dtype=object, name=column.name)


def named_by_itself(value: Any) -> Any:
    """Return a value of a column of several kinds as `fedfair.datasets.features.encoder.kept` names one of its kind.

    Args:
        value: The value.
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _without_types(column: pd.Series) -> pd.Series:
    """Return a column of objects with exact decimals as numbers, and dates, durations, times and bytes as text."""
    if {type(value) for value in column.dropna()} <= {str, int, float, bool}:
        return column
    listed = [value if missing else plain_value(value) for value, missing in zip(column, column.isna(), strict=True)]
    return pd.Series(listed, column.index, dtype=object, name=column.name)


def plain_value(value: Any) -> Any:
    """Return an exact decimal as a number, a date, duration, time or bytes as text, and any other value as it is.

    Args:
        value: The value.
    """
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time() and value.tzinfo is None else value)
    if isinstance(value, timedelta):
        return str(pd.Timedelta(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value) if isinstance(value, date | time) else value
