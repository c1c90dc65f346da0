"""Reading a file of SPSS, Stata or SAS as the file declares its columns: value labels, missing values, dates.

All that decides how a cell is read is what the file declares of its column, never another record: a value with a label
is the label, one that the file declares as missing is missing, and a date outside any calendar is missing by itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from fedfair.datasets.columns.cell import spelled
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.quantities import written_number
from fedfair.datasets.columns.texts import ALWAYS
from fedfair.datasets.names import value_name, visible, warn_once

_log = logging.getLogger(__name__)
_READERS = {".sav": "read_sav", ".zsav": "read_sav", ".por": "read_por", ".dta": "read_dta",
            ".sas7bdat": "read_sas7bdat", ".xpt": "read_xport"}
_PROGRAMS = {".dta": "Stata", ".sas7bdat": "SAS", ".xpt": "SAS"}  # the others are of SPSS
SUFFIXES = tuple(_READERS)
_CATALOGUE = ".sas7bcat"  # where SAS keeps value labels, beside the file

_SPSS, _EPOCH = np.datetime64("1582-10-14", "us"), np.datetime64("1960-01-01", "us")
_SECOND, _DAY = 10**6, 86400 * 10**6  # microseconds
_AGES = 10_000 * 366 * _DAY  # microseconds: no calendar goes further from an epoch

_DATES = {  # by program: a pattern of formats, and the microseconds of a unit; they count from an epoch
    "SPSS": ((r"[AEJS]?DATE\d*|DATETIME[\d.]*|YMDHMS[\d.]*|(MOYR|QYR|WKYR)\d*", _SECOND),),
    "Stata": ((r"%-?t?d.*", _DAY), (r"%-?t[cC].*", _SECOND // 1000)),
    "SAS": ((r"(IS8601|[EB]8601|DTDATE|DATETIME|DATEAMPM|MDYAMPM)(D[TN])?[\d.]*", _SECOND),
            (r"DATE\d*|(MMDDYY|DDMMYY|YYMMDD)[BCDNPS]?\d*|WEEKDAT[EX]\d*|WORDDAT[EX]\d*|MONYY\d*|JULIAN\d*|"
             r"YYMON\d*|NLDATE\d*|(IS8601|[EB]8601)DA\d*", _DAY))}
_DURATIONS = {"SPSS": r"D?TIME[\d.]*|MTIME[\d.]*", "SAS": r"(TIME|HHMM|TOD|TIMEAMPM|MMSS|(IS8601|[EB]8601)TM)[\d.]*"}
_MONTHS = {"m": 1, "q": 3, "h": 6}  # Stata's months, quarters and half years are counted from 1960, too
_MONTHLY = re.compile(r"%-?t([mqh]).*")


class Survey(NamedTuple):
    """A table as a file of a program for statistics declares it.

    Args:
        frame: The cells: numbers, moments, durations and text; a column with value labels is a category.
        described: What the file declares, in words.
    """

    frame: pd.DataFrame
    described: str


def read_survey(path: Path, asked: Asked) -> Survey:
    """Read a file of SPSS, Stata or SAS; value labels of a file of SAS stand in a catalogue of its name beside it.

    Args:
        path: File.
        asked: What the user says: the encoding, and the columns that are numbers although values have labels.

    Raises:
        ValueError: If pyreadstat is not installed, or the file cannot be read.
    """
    suffix = path.suffix.lower()
    program = _PROGRAMS.get(suffix, "SPSS")
    try:
        import pyreadstat
    except ImportError:
        raise ValueError(f"{path} is a file of {program}, which needs pyreadstat: pip install 'fedfair[pyreadstat]', "
                         "or save it as CSV, Parquet or .xlsx") from None
    try:
        frame, _ = _read(pyreadstat, path, asked, disable_datetime_conversion=True)
        _, declared = _read(pyreadstat, path, asked, metadataonly=True, **_declaring(path))
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError) as error:
        raise OSError(str(error)) from error
    taken = {name: labels for name in declared.variable_value_labels if name not in asked.numeric
             and (labels := _of_answers(name, declared))}
    columns = {name: _labelled(column, taken[name]) if name in taken else
               _typed(column, declared.original_variable_types.get(name) or "", program)
               for name, column in frame.items()}
    _say_missing(path, declared)
    said = f", whose value labels are the categories of {', '.join(sorted(taken))}" if taken else ""
    return Survey(pd.DataFrame(columns, index=frame.index), f"{suffix[1:]}, a file of {program}{said}")


def _read(library: Any, path: Path, asked: Asked, **options: Any) -> tuple[pd.DataFrame, Any]:
    """Return the cells of a file, in which what it declares as missing is so, and what it declares of its columns."""
    suffix = path.suffix.lower()
    encoding = {} if asked.encoding is None or suffix == ".por" else {"encoding": asked.encoding}
    read: tuple[pd.DataFrame, Any] = getattr(library, _READERS[suffix])(path, **encoding, **options)
    return read


def _declaring(path: Path) -> dict[str, Any]:
    """Return the options by which a reader tells which values are missing, or have labels in a catalogue of SAS."""
    suffix, catalogue = path.suffix.lower(), path.with_suffix(_CATALOGUE)
    if suffix == ".sas7bdat" and catalogue.is_file():
        return {"catalog_file": catalogue}
    return {"user_missing": True} if suffix in (".sav", ".zsav") else {}


def _say_missing(path: Path, declared: Any) -> None:
    """Say, once, which values a file declares as missing: ranges of SPSS, and tags such as .a of Stata with a label."""
    gaps = {name: [" to ".join(dict.fromkeys((value_name(each["lo"]), value_name(each["hi"])))) for each in ranges]
            for name, ranges in declared.missing_ranges.items()}
    for name, known in declared.variable_value_labels.items():
        tags = [f".{value}" for value in known if _is_tag(value, name, declared)]
        gaps[name] = [*gaps.get(name, ()), *tags]
    said = [f"{name} ({', '.join(values)})" for name, values in gaps.items() if values]
    if said:
        warn_once(_log, visible(f"{path} declares values that count as missing: {', '.join(said)}"))


def _of_answers(name: str, declared: Any) -> dict[Any, str]:
    """Return the labels of a column's values that are answers: neither in a range of missing values, nor tags."""
    missing = declared.missing_ranges.get(name, ())
    return {value: label for value, label in declared.variable_value_labels[name].items()
            if label.strip() and not _is_tag(value, name, declared) and not _is_within(value, missing)}


def _is_tag(value: Any, name: str, declared: Any) -> bool:
    """Return whether a value with a label is the tag of a missing number, such as .a: a letter among numbers."""
    return isinstance(value, str) and declared.readstat_variable_types[name] != "string"


def _is_within(value: Any, ranges: Collection[Mapping[str, Any]]) -> bool:
    """Return whether a value is within one of some ranges."""
    return any(isinstance(value, str) == isinstance(each["lo"], str) and each["lo"] <= value <= each["hi"]
               for each in ranges)


def _labelled(column: pd.Series, labels: Mapping[Any, str]) -> pd.Series:
    """Return a column as a category: each value by its label, or as it stands if it has none."""
    names = _names(labels)
    values = [None if missing else names.get(value, value_name(value))
              for value, missing in zip(column.tolist(), column.isna().tolist(), strict=True)]
    return pd.Series(pd.Categorical(values, dtype=pd.CategoricalDtype(sorted({*values} - {None}, key=str))),
                     column.index, name=column.name)


def _names(labels: Mapping[Any, str]) -> dict[Any, str]:
    """Return the category of each value with a label: the label, and the value too where the label does not tell it.

    That is where another value has the same label, where the label writes a number, which another value may be, and
    where it counts as missing in every table, as "None" does.

    Examples:
        >>> _names({1.0: "Yes", 2.0: "No", 3.0: "Other", 4.0: "Other", 5.0: "5", 6.0: "None"})
        {1.0: 'Yes', 2.0: 'No', 3.0: 'Other (3)', 4.0: 'Other (4)', 5.0: '5', 6.0: 'None (6)'}
    """
    texts = {value: spelled(label) for value, label in labels.items()}
    written = list(texts.values())

    def name(value: Any, text: str) -> str:
        """Return the category of a value."""
        tells = text not in ALWAYS and written.count(text) == 1 and written_number(text) in (None, value)
        return text if tells else f"{text} ({value_name(value)})"

    return {value: name(value, text) for value, text in texts.items()}


def _typed(column: pd.Series, form: str, program: str) -> pd.Series:
    """Return a column by the format that its file declares: moments, durations, numbers or text, whatever it holds."""
    if column.dtype.kind not in "iuf":
        return column
    numbers = column.astype("float64")
    monthly = _MONTHLY.fullmatch(form) if program == "Stata" else None
    if monthly:
        months = np.datetime64("1960-01", "M") + _span(numbers * _MONTHS[monthly[1]], 12 * 10_000, "M")
        return pd.Series(months.astype("M8[us]"), column.index, name=column.name)
    for pattern, unit in _DATES[program]:
        if re.fullmatch(pattern, form):
            moments = (_SPSS if program == "SPSS" else _EPOCH) + _span(numbers * unit, _AGES, "us")
            return pd.Series(moments, column.index, name=column.name)
    if re.fullmatch(_DURATIONS.get(program, ""), form) and form:
        return pd.Series(_span(numbers * _SECOND, _AGES, "us"), column.index, name=column.name)
    return numbers


def _span(numbers: pd.Series, most: int, unit: Literal["M", "us"]) -> Any:
    """Return numbers as spans of time, `[n]`, rounded; none for those that are missing or larger than `most`."""
    fits = numbers.abs().to_numpy() <= most  # not where one is missing
    spans = np.rint(np.where(fits, numbers, 0)).astype("int64").astype(f"m8[{unit}]")
    return np.where(fits, spans, np.timedelta64("NaT"))
