"""What everybody knows of a table: ranges of its numbers and lists of its categories, in settings or in a file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedfair.datasets.encoding import OTHER, Encoding, Feature
from fedfair.datasets.features import Range, to_ranges
from fedfair.datasets.grouped import GroupedDataset

RECORDS = "records"
"""Source of a schema that was read off the records, so that it is not public."""


class Listed(NamedTuple):
    """The public list of a column's categories."""

    column: str
    categories: tuple[str, ...]


WithNumbers = Callable[[GroupedDataset, Sequence[Range]], GroupedDataset]
"""From records and the public ranges of their columns to records with features of the numbers."""


class Schema(NamedTuple):
    """Ranges and lists by column that do not depend on the records, and the `source` they are known from."""

    source: str
    ranges: tuple[Range, ...] = ()
    categories: tuple[Listed, ...] = ()

    @property
    def columns(self) -> set[str]:
        """The columns that something is known of."""
        return {entry.column for entry in self.ranges} | {entry.column for entry in self.categories}

    @staticmethod
    def of(source: str, ranges: Mapping[str, tuple[float, float]] | None = None,
           categories: Mapping[str, str] | None = None) -> Schema:
        """Return the schema of a published table.

        Args:
            source: Where ranges and lists are known from.
            ranges: Smallest and largest number by column.
            categories: Lists by column, each as one text with commas between categories.
        """
        return Schema(source, tuple(Range(column, *ends) for column, ends in (ranges or {}).items()),
                      tuple(Listed(column, tuple(text.split(", "))) for column, text in (categories or {}).items()))

    def overridden(self, ranges: Sequence[Range], categories: Sequence[Listed]) -> Schema:
        """Return the schema with other ranges and lists for some columns; a column has only the later one.

        Args:
            ranges: Ranges that take the place of what the schema says of their columns.
            categories: Lists that do.
        """
        named = Schema("", tuple(ranges), tuple(categories)).columns
        return Schema(self.source, (*(each for each in self.ranges if each.column not in named), *ranges),
                      (*(each for each in self.categories if each.column not in named), *categories))


def prepared(data: GroupedDataset, schema: Schema, with_numbers: WithNumbers = to_ranges) -> GroupedDataset:
    """Return the records with features that depend on each record alone: numbers by range, categories by list.

    A number beyond its range counts as its end. A category that is not listed counts as "other" where that is listed,
    and else as none. What the schema says of columns that are not there is ignored, since they may be left out.

    Args:
        data: Records with raw numbers, and a feature for every category that occurs.
        schema: Public ranges and lists.
        with_numbers: Makes features of the numbers, given the ranges of the columns that are there.

    Raises:
        ValueError: If a column has neither range nor list.
    """
    there = {*data.columns}
    ranges = tuple(each for each in schema.ranges if each.column in there)
    data = with_numbers(data, ranges) if ranges or data.numeric else data
    lists = {each.column: each.categories for each in schema.categories}
    one_hot = dict.fromkeys(feature.column for feature in data.encoding.features if feature.category is not None)
    unlisted = [column for column in one_hot if column not in lists]
    if unlisted:
        raise ValueError(f"nothing is publicly known of the categories of {', '.join(unlisted)}: list them by "
                         f'categories = {{ {unlisted[0]} = ["...", "{OTHER}"] }}, leave the columns out by without, or '
                         'take preprocessing = "private" or "records"')
    for column in one_hot:
        data = _listed(data, column, lists[column])
    return data


def position(category: str, known: Sequence[str]) -> int:
    """Return where a category stands in a list: by its text, by the number that it writes, or as "other"; else -1.

    Args:
        category: The value of one record.
        known: The listed categories.
    """
    if category in known:
        return known.index(category)
    number = _number(category)
    same = [place for place, text in enumerate(known) if number is not None and _number(text) == number]
    if len(same) == 1:
        return same[0]
    return known.index(OTHER) if OTHER in known else -1


def read(path: Path) -> Schema:
    """Read a schema from a TOML file: `source`, and tables `ranges` and `categories` by column.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no schema.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return _schema(values)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no schema {path}: `fedfair data schema FILE` writes one") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no schema ({error}): it has the lines source = \"...\", [ranges] with "
                         'age = [17, 90], and [categories] with job = ["clerk", "nurse", "other"]') from error


def _schema(values: Mapping[str, Any]) -> Schema:
    """Return the schema in the values of a file; raise `TypeError` or `ValueError` for others."""
    strange = values.keys() - {"source", "ranges", "categories"}
    if strange:
        raise ValueError(f"{', '.join(sorted(strange))} is not known here")
    if not str(values.get("source", "")).strip():
        raise ValueError("source is missing: say where ranges and categories are published")
    ranges = tuple(Range(column, float(low), float(high)) for column, (low, high) in values.get("ranges", {}).items())
    lists = tuple(Listed(column, tuple(map(str, names))) for column, names in values.get("categories", {}).items())
    return Schema(str(values["source"]), ranges, lists)


def _listed(data: GroupedDataset, column: str, categories: Sequence[str]) -> GroupedDataset:
    """Replace a column's features by one for each listed category, sorted, in the place of the first."""
    known, gone = sorted(set(categories)), {each.category for each in data.encoding.left_out if each.column == column}
    old = [at for at, feature in enumerate(data.encoding.features) if feature.column == column]
    x = torch.zeros(len(data), len(known), dtype=data.x.dtype)
    for at in old:
        place = position(str(data.categories[at]), known)
        if place >= 0:
            x[:, place] += data.x[:, at]
    kept = [at for at, name in enumerate(known) if name not in gone]
    first, last = old[0], old[-1] + 1
    features = (*data.encoding.features[:first], *(Feature(column, known[at]) for at in kept),
                *data.encoding.features[last:])
    encoding = Encoding(features, data.encoding.left_out, data.encoding.reading, (*data.encoding.listed, column))
    return replace(data, x=torch.cat([data.x[:, :first], x[:, kept], data.x[:, last:]], 1), encoding=encoding)


def _number(text: str) -> float | None:
    """Return the number that a text writes, or None."""
    try:
        return float(text)
    except ValueError:
        return None
