"""A file of the user's own: what it is taken for, its labels by group, and the text of its schema.

What a user's file is taken for: its convention, the kinds of its columns, and what is doubtful.

How frequent each label is in each group of a data set, and which groups are small.

The text of a schema to be edited, from what a file holds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import tomli_w
import torch

from fedfair.datasets.columns import relations
from fedfair.datasets.columns.cell import folded
from fedfair.datasets.columns.convention import Asked, Reading, as_read, with_bands
from fedfair.datasets.columns.kinds import LEFT_OUT, Column, understand
from fedfair.datasets.columns.quantities import UNITS
from fedfair.datasets.columns.texts import doubtful_answer
from fedfair.datasets.columns.tidy import is_text as is_text_column
from fedfair.datasets.columns.tidy import listed, reading_of, tidied, whole_numbers
from fedfair.datasets.features.encoding import OTHER
from fedfair.datasets.files.chunks import read_files
from fedfair.datasets.files.part_files import part_files
from fedfair.datasets.files.row_file import open_rows, unreadable
from fedfair.datasets.files.table_file import is_text
from fedfair.datasets.grouped import GroupedDataset, Parts
from fedfair.datasets.names import as_text, toml_key
from fedfair.datasets.schema import RECORDS
from fedfair.datasets.table import features_alone, shown
from fedfair.plugins.registry import unknown
from fedfair.protocol.task import Task
from simulations.drawing.table import Table

_MARKS = {".": "a dot", ",": "a comma"}
_LINES = 10  # are named


class FileFindings(NamedTuple):
    """How a file is read: its columns, a sentence on its convention, a question for each column in doubt, the names of
    its classes, and the setting of quantities without which declared numbers are none; "" for none.
    """

    columns: list[Column]
    described: str
    questions: list[str]
    classes: tuple[str, ...] = ()
    quantities: str = ""


def quantities_in(asked: Asked, columns: Collection[str]) -> str:
    """Return the setting of the quantities of some columns, for a fit and a schema, which look at no cell for it.

    Args:
        asked: What the user says, with the quantities that were found.
        columns: Columns that are declared to hold numbers; none of those makes it "".

    Examples:
        >>> quantities_in(Asked(quantities=(("rate", "percentage"), ("seen", "time"))), ["rate"])
        'quantities={rate="percentage",seen="time"}'
    """
    if not {*columns} & {*dict(asked.quantities)}:
        return ""
    named = ",".join(f'{toml_key(name)}="{kind}"' for name, kind in asked.quantities)
    return f"quantities={{{named}}}"


def examine(task: Task) -> FileFindings:
    """Return how the file of a task is read; raise `ValueError` or `FileNotFoundError` if it cannot be."""
    asked, attributes = task.asked, [name for name in task.attributes if name]
    file = read_files(Path(task.csv or ""), asked)
    asked = replace(asked, categorical=(*asked.categorical, *listed(file.frame)))
    roles = (task.label, task.participant, *attributes)
    for name in filter(None, (*roles, task.site)):
        if name not in file.frame:
            raise unknown("column", name, map(str, file.frame))
    read = file.frame.drop(columns=features_alone(task.without or (), file.frame, roles))
    reading = reading_of(read, asked, file.separator, (*roles, task.site))
    reading = with_bands(reading, asked, attributes[0])
    tidy = shown(tidied(read, reading), reading)
    columns = understand(tidy, str(task.label), attributes, task.participant, as_read(asked, reading))
    asked_of = [column.question for column in columns if column.question]
    asked_of += [question for column in columns if (question := _on_answer(column, read[column.name], asked))]
    asked_of += [_on_other(column.name) for column in columns
                 if column.kind == "category" and bool((tidy[column.name] == OTHER).any())]
    used = [column.name for column in columns if not column.problem and column.kind not in LEFT_OUT]
    named = [name for name in tidy if name in used or name in roles]
    asked_of += relations.questions(tidy[named], str(task.label), attributes, task.participant)
    questions = [f"Question: {question[0].upper()}{question[1:]}" for question in asked_of]
    return FileFindings(columns, f"Read as {file.described}; {_convention(reading)}.", questions + _unreadable(task),
                        _classes(tidy[str(task.label)], reading), quantities_in(as_read(asked, reading), asked.numeric))


def _classes(column: pd.Series, reading: Reading) -> tuple[str, ...]:
    """Return the names of the classes as a fit has them: in small letters where capitals do not matter."""
    return tuple(dict.fromkeys(folded(name) if reading.same_capitals else name for name in _values(column)))


_NAMES = ("category", "boolean", "label", "group", "label and group")


def _on_answer(column: Column, raw: pd.Series, asked: Asked) -> str | None:
    """Return whether to ask about a text that counts as missing in a column of names, and may be one of them."""
    if column.kind not in _NAMES or column.name in asked.answers or not is_text_column(raw):
        return None
    text = raw.astype("string")
    word = doubtful_answer(text)
    return word and (f"is {word!r} in column {column.name!r}, which counts as missing in {int((text == word).sum()):,} "
                     f"rows, an answer{', as NA is for Namibia' * (word == 'NA')}? Then give answers = "
                     f'["{column.name}"]')


def _on_other(name: str) -> str:
    """Return the question about a column of categories in which "other" is written."""
    return (f"does {OTHER!r} in column {name!r} mean all that is not named? A fit counts rare and unknown categories "
            "as that too; if it is a category of its own, write it in another way")


def _unreadable(task: Task) -> list[str]:
    """Say which lines of files of text cannot be read by themselves, as a fit reads them."""
    files = part_files(Path(task.csv or ""))
    sentences = [_unreadable_lines(file, task.asked) for file in files if is_text(file)]
    return [f"{file}: {sentence}" if len(files) > 1 else sentence
            for file, sentence in zip(filter(is_text, files), sentences, strict=True) if sentence]


def _unreadable_lines(file: Path, asked: Asked) -> str:
    """Say which lines of a file cannot be read by themselves; "" if all can."""
    try:
        lines = [*islice(unreadable(open_rows(file, asked)), _LINES + 1)]
    except ValueError as error:
        return f"A fit, which reads each line by itself, would say: {error}."
    if not lines:
        return ""
    named = ", ".join(map(str, lines[:_LINES])) + (", ..." if len(lines) > _LINES else "")
    return ("Lines that a fit leaves out, since they are no complete row by themselves (a value over several lines, an "
            f"open quote, too many values, the names of the columns again, another encoding): {named}.")


def _convention(reading: Reading) -> str:
    """Say how cells are read."""
    parts = [f"numbers with {_MARKS[reading.decimal]} before decimals"]
    parts += [f"{_MARKS[mark]} in {name}" for name, mark in reading.exceptions]
    parts += [f"{name} in {sign}" for name, sign in reading.signs if not reading.quantity(name)]
    parts += [f"{name} in {UNITS[quantity]}" for name, quantity in reading.quantities]
    if reading.missing:
        parts.append(f"missing: {', '.join(reading.missing)}")
    return ", ".join(parts)


SMALL = 30
"""Records of a group, or less, of which no figure says much."""
_CLASSES = 6  # are shown


def label_rates(parts: Parts) -> Table:
    """Lay out the share of each label in each group, over all parts."""
    counts = sum(_counts(data) for _, data in parts)
    labels = parts.train.labels[:_CLASSES]
    rows = [(name, sum(row), *(f"{count / max(1, sum(row)):.1%}" for count in row[:_CLASSES]))
            for name, row in zip(parts.train.names, torch.as_tensor(counts).tolist(), strict=True)]
    return Table("", "Labels by group", ("group", "records", *labels), rows, figures=range(1, 2 + len(labels)))


def small_groups(parts: Parts) -> list[str]:
    """Return a sentence for each part that has groups of fewer than `SMALL` records; an empty part is not looked at."""
    sentences = []
    for part, data in parts:
        sizes = zip(data.names, data.group_sizes(), strict=True)
        small = [f"{name} ({size:,})" for name, size in sizes if size < SMALL]
        if small and len(data):
            sentences.append(f"few records in the {part} part, below {SMALL}: {', '.join(small)}: figures of these "
                             "groups say little")
    return sentences


def _counts(data: GroupedDataset) -> torch.Tensor:
    """Return the number of records of each group and label, `[groups, classes]`."""
    cells = torch.bincount(data.group * data.classes + data.y, minlength=len(data.names) * data.classes)
    return cells.view(len(data.names), data.classes)


_HEAD = f"""\
# A schema: what everybody may know of a table's columns, so that preparing them costs no privacy.
# Its first version was read off the records, and would give some of them away: put the published range of every
# number and the published list of every category in its place. Then name where they are published as the source.
# The lists of label and group are those of all classes and groups. Nodes with files of their own are held to them.
# While the source is "{RECORDS}", runs with this schema have a guarantee that is only nominal.
# Numbers outside the range are clipped to it; a category that is not listed counts as "{OTHER}".

"""


def schema_text(frame: pd.DataFrame, label: str, groups: Sequence[str], asked: Asked) -> str:
    """Return the schema of a tidied table, with ranges that end in round numbers.

    Args:
        frame: Tidied table.
        label: Column to predict.
        groups: Columns of the groups, whose names are public anyway, as those of the classes are.
        asked: What the user says, with the quantities that were found.
    """
    kinds = {column.name: column.kind for column in understand(frame, label, groups, None, asked)}
    ranges = {name: list(_round_range(frame[name])) for name, kind in kinds.items() if kind == "number"}
    categories = {name: [*dict.fromkeys((*_values(frame[name]), OTHER))] for name, kind in kinds.items()
                  if kind in ("boolean", "category")}
    categories |= {name: _values(frame[name]) for name in dict.fromkeys((*groups, label))}
    unused = [name for name, kind in kinds.items() if kind in LEFT_OUT]
    note = f"# Columns with nothing to learn from: leave them out with without = {unused}\n\n" if unused else ""
    quantities = quantities_in(asked, ranges)
    note += f"# Say beside it what some numbers are: --set '{quantities}'\n\n" if quantities else ""
    return _HEAD + note + tomli_w.dumps({"source": RECORDS, "label": label, "group": as_text(groups), "ranges": ranges,
                                         "categories": categories})


def _values(column: pd.Series) -> list[str]:
    """Return the values of a column as text, sorted, numbers by size."""
    return [str(value) for value in sorted(whole_numbers(column.dropna()).unique())]


def _round_range(column: pd.Series) -> tuple[float, float]:
    """Return a range around the numbers of a column, with ends of two digits."""
    low, high = float(column.min()), float(column.max())
    unit = 10.0 ** (math.floor(math.log10(max(high - low, abs(high), 1e-300))) - 1)
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit
