"""What a user's file is taken for: its convention, the kinds of its columns, and what is doubtful."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fedfair.datasets.columns import Column, understand
from fedfair.datasets.reading import Reading
from fedfair.datasets.table import features_alone, shown, with_bands
from fedfair.datasets.table_file import read_table
from fedfair.datasets.tidy import reading_of, tidied
from fedfair.protocol.task import Task

_MARKS = {".": "a dot", ",": "a comma"}


class FileFindings(NamedTuple):
    """How a file is read: its columns, a sentence on its convention, and a question for each column in doubt."""

    columns: list[Column]
    described: str
    questions: list[str]


def examine(task: Task) -> FileFindings:
    """Return how the file of a task is read; raise `ValueError` or `FileNotFoundError` if it cannot be."""
    asked, attributes = task.asked, [name for name in task.attributes if name]
    file = read_table(Path(task.csv or ""), asked)
    roles = (task.label, task.participant, *attributes)
    read = file.frame.drop(columns=features_alone(task.without or (), file.frame, roles))
    reading = with_bands(reading_of(read, asked, file.separator), asked, attributes[0])
    columns = understand(shown(tidied(read, reading), reading), str(task.label), attributes, task.participant, asked)
    return FileFindings(columns, f"Read as {file.described}; {_convention(reading)}.",
                        [f"Question: {_sentence(column.question)}" for column in columns if column.question])


def _convention(reading: Reading) -> str:
    """Say how cells are read."""
    parts = [f"numbers with {_MARKS[reading.decimal]} before decimals"]
    parts += [f"{_MARKS[mark]} in {name}" for name, mark in reading.exceptions]
    parts += [f"{name} in {sign}" for name, sign in reading.signs]
    if reading.missing:
        parts.append(f"missing: {', '.join(reading.missing)}")
    return ", ".join(parts)


def _sentence(question: str) -> str:
    """Return a question that begins with a capital letter."""
    return question[0].upper() + question[1:]
