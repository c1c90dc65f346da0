"""A table, whichever library it is of: pandas, polars, Arrow, DuckDB, Python's own lists, arrays, a torch data set.

All become a DataFrame of pandas with plain types, as a file is read, before anything is made of their rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pandas.api.types import is_timedelta64_dtype
from torch.utils.data import Dataset

from fedfair.datasets.files.table_file import of_arrow
from fedfair.datasets.names import value_name


def as_arrow(table: Any) -> Any:
    """Return a table of polars, DuckDB, or another library that gives Arrow's, as one of Arrow; else what is given.

    Args:
        table: Table, which may be lazy or a stream, or anything else.
    """
    import pyarrow as pa

    if isinstance(table, pd.DataFrame | pa.Table):
        return table
    table = table.collect() if hasattr(table, "collect") and hasattr(table, "lazy") else table
    table = table.to_arrow() if hasattr(table, "to_arrow") else table
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        return table
    try:
        return pa.table(table)
    except (pa.ArrowException, ValueError):  # a column alone
        return table


def as_pandas(table: Any) -> Any:
    """Return a table of polars, Arrow, DuckDB or pandas as one of pandas of plain types, as files hold them.

    Whole numbers stay exact whichever others are missing. An interval, as `pandas.cut` makes them, is a category named
    by its text; a period is the moment at which it begins. What is no table is returned as it is.

    Args:
        table: Table, or array; columns as a dict of lists or arrays; rows as a list of dicts, or a structured array.

    Examples:
        >>> as_pandas(pd.DataFrame({"age": pd.cut([20, 40, 60], [0, 30, 90])}))["age"].tolist()
        ['(0, 30]', '(30, 90]', '(30, 90]']
        >>> as_pandas([{"age": 20, "sex": "f"}, {"age": None, "sex": "m"}])["age"].tolist()
        [20, None]
    """
    import pyarrow as pa

    table = as_arrow(_of_python(table))
    table = of_arrow(table) if isinstance(table, pa.Table) else table
    with in_order(table):
        frame = table.to_pandas() if hasattr(table, "to_pandas") else table
    if not isinstance(frame, pd.DataFrame):
        return frame
    plain = {place: _plain_type(frame.iloc[:, place]) for place in range(frame.shape[1])}
    changed = {place: column for place, column in plain.items() if column is not None}
    return pd.concat([changed.get(place, frame.iloc[:, place]) for place in plain], axis=1) if changed else frame


@contextmanager
def in_order(table: Any) -> Iterator[None]:
    """Let a data set of Ray yield its rows in their order, as a context: else they come as its tasks end, and labels
    beside them would be those of others, and a seeded fit another one.

    Args:
        table: The data set, or anything else.
    """
    options = getattr(getattr(table, "context", None), "execution_options", None)
    if options is None or not hasattr(options, "preserve_order"):
        yield
        return
    before, options.preserve_order = options.preserve_order, True
    try:
        yield
    finally:
        options.preserve_order = before


def _of_python(table: Any) -> Any:
    """Return columns or rows of Python's own, or a structured array, as a table of pandas; else what is given.

    Python's values stay what they are, so that none is another number for what stands beside it.
    """
    if isinstance(table, Mapping) and all(isinstance(values, list | tuple | np.ndarray | pd.Series)
                                          for values in table.values()):
        return pd.DataFrame({name: pd.Series(values, dtype=object) if isinstance(values, list | tuple) else values
                             for name, values in table.items()})
    if isinstance(table, list | tuple) and table and all(isinstance(row, Mapping) for row in table):
        return pd.DataFrame([*table], dtype=object)
    return pd.DataFrame(table) if isinstance(table, np.ndarray) and table.dtype.names else table


def table_of(given: Any) -> pd.DataFrame:
    """Return a table as `as_pandas` does; raise `ValueError` for what is none.

    Args:
        given: Table.
    """
    table = as_pandas(given)
    if not isinstance(table, pd.DataFrame):
        raise no_table(given)
    return table


def table_or_array(given: Any) -> Any:
    """Return a table as `as_pandas` does, or an array or nested lists as they are; raise `ValueError` for what is none
    of these: a column or row of pandas, a single value.

    Args:
        given: Rows.

    Examples:
        >>> table_or_array([[1.0, 2.0]]), table_or_array({"age": [20]})["age"].tolist()
        ([[1.0, 2.0]], [20])
    """
    rows = as_pandas(given)
    if isinstance(rows, pd.Series) or not (rows.shape if hasattr(rows, "shape") else np.asarray(rows).shape):
        raise no_table(given)
    return rows


def no_table(given: Any) -> ValueError:
    """Return the error for what is given in place of a table.

    Args:
        given: What is given.
    """
    kind = type(given).__name__
    return ValueError(f"the rows are {'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}, which is no table: give a "
                      "DataFrame of pandas or polars, a table of Arrow, a relation of DuckDB, a dict with a list for "
                      "each column, or a list with a dict for each row, also for one row")


def _plain_type(column: pd.Series) -> pd.Series | None:
    """Return a column of intervals as text, one of periods as moments, and categories of durations, or of several
    kinds, as plain values; None for any other, which is plain.
    """
    kind = column.cat.categories.dtype if isinstance(column.dtype, pd.CategoricalDtype) else column.dtype
    if isinstance(kind, pd.PeriodDtype):
        moments: pd.Series = column.astype(kind).dt.to_timestamp()
        return moments
    if isinstance(kind, pd.IntervalDtype):
        return column.astype(object).map(_interval_text, na_action="ignore").astype(object)
    if kind is column.dtype or not (is_timedelta64_dtype(kind) or of_no_type(column.cat.categories)):
        return None
    return column.astype(kind)


def _interval_text(interval: pd.Interval) -> str:
    """Return an interval as text, whose ends have no decimals where they are whole: a gap makes doubles of all."""
    low, high = value_name(interval.left), value_name(interval.right)
    return f"{'[' if interval.closed_left else '('}{low}, {high}{']' if interval.closed_right else ')'}"


def of_no_type(values: pd.Series | pd.Index) -> bool:
    """Return whether objects are of several kinds, or moments, durations or times."""
    return values.dtype == object and pd.api.types.infer_dtype(values, skipna=True) in (
        "mixed", "mixed-integer", "date", "datetime", "datetime64", "time", "timedelta", "timedelta64")


def frame_of(x: ArrayLike, y: Sequence[Any] | ArrayLike, group: Sequence[Any] | ArrayLike) -> pd.DataFrame:
    """Make a table of arrays, with the columns x0, x1, ..., "label" and "group".

    Args:
        x: Features `[n, features]`.
        y: Labels `[n]`.
        group: Names or numbers of the groups `[n]`.

    Returns:
        Table of n rows.

    Raises:
        ValueError: If x is not of two dimensions, or the lengths differ.
    """
    features, labels, groups = np.asarray(x), np.asarray(y), np.asarray(group)
    if features.ndim != 2 or not len(features) == len(labels) == len(groups):
        raise ValueError(f"x, y and group have the shapes {features.shape}, {labels.shape} and {groups.shape}: give x "
                         "as [n, features], and n labels and groups")
    frame = pd.DataFrame(features, columns=[f"x{number}" for number in range(features.shape[1])])
    return frame.assign(label=labels, group=groups)


def frame_of_dataset(data: Any) -> pd.DataFrame:
    """Make a table of a torch data set whose examples are (features, label, group); see `frame_of`.

    Args:
        data: Examples: features `[features]`, a label and a group each.

    Returns:
        Table of a row for each example.

    Raises:
        ValueError: If the examples are of another form.
    """
    by_number = isinstance(data, Dataset) and isinstance(data, Sized)  # a torch data set need not end as a list does
    examples = [data[number] for number in range(len(data))] if by_number else list(data)
    if not examples or any(not isinstance(each, tuple | list) or len(each) != 3 for each in examples):
        raise ValueError("an example is not (features, label, group): give a data set whose examples are")
    x, y, group = zip(*examples, strict=True)
    return frame_of([np.asarray(each).reshape(-1) for each in x], [_single(each) for each in y],
                    [_single(each) for each in group])


def _single(value: Any) -> Any:
    """Return a label or group as a plain value."""
    return value.item() if hasattr(value, "item") else value
