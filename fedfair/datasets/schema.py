"""What everybody knows of a table: ranges of its numbers and lists of its categories, in settings or in a file.

What server and nodes know of the nodes' tables before any file is opened is everything but the records (`Agreement`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedfair.datasets.columns.cell import repeated
from fedfair.datasets.columns.convention import ALL, Asked, band_names
from fedfair.datasets.columns.quantities import written_number
from fedfair.datasets.features.encoding import OTHER, Feature
from fedfair.datasets.features.features import Range, to_ranges
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.names import as_text
from fedfair.datasets.split import Missing
from fedfair.plugins.text_values import from_toml

RECORDS = "records"
"""Source of a schema that was read off the records, so that it is not public."""


class Listed(NamedTuple):
    """The public list of a column's categories."""

    column: str
    categories: tuple[str, ...]


WithNumbers = Callable[[GroupedDataset, Sequence[Range]], GroupedDataset]
"""From records and the public ranges of their columns to records with features of the numbers."""


class Schema(NamedTuple):
    """Ranges and lists by column that do not depend on the records, and the `source` they are known from.

    A file may name the columns of `label` and groups (`group`, with commas between several) too.
    """

    source: str
    ranges: tuple[Range, ...] = ()
    categories: tuple[Listed, ...] = ()
    label: str = ""
    group: str = ""

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
        return self._replace(ranges=(*(each for each in self.ranges if each.column not in named), *ranges),
                             categories=(*(each for each in self.categories if each.column not in named), *categories))


class SchemaMismatch(ValueError):
    """A node's file is not like the schema; the message holds names of the schema's columns, and nothing of the file.

    Args:
        differences: What differs, in words that everybody may read.
    """

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__(f"its file is not like the schema: {'; '.join(differences)}; its own log says more. Correct "
                         "the file, or agree on another schema")


def prepared(data: GroupedDataset, schema: Schema, with_numbers: WithNumbers = to_ranges) -> GroupedDataset:
    """Return the records with features that depend on each record alone: numbers by range, categories by list.

    Numbers outside the range are clipped to it. A category that is not listed counts as "other" where that is listed,
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
    return _listed(data, {column: lists[column] for column in one_hot}) if one_hot else data


def position(category: str, known: Sequence[str]) -> int:
    """Return where a category stands in a list: by its text, by the number that it writes, or as "other"; else -1.

    Args:
        category: The value of one record.
        known: The listed categories.
    """
    if category in known:
        return known.index(category)
    number = written_number(category)
    same = [place for place, text in enumerate(known) if number is not None and written_number(text) == number]
    if len(same) == 1:
        return same[0]
    return known.index(OTHER) if OTHER in known else -1


def read(path: Path) -> Schema:
    """Read a schema from a TOML file: `source`, `label` and `group`, and tables `ranges` and `categories` by column.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no schema.
    """
    try:
        return _schema(from_toml(path.read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no schema {path}: `fedfair data schema FILE` writes one") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no schema ({error}): it has the lines source = \"...\", [ranges] with "
                         'age = [17, 90], and [categories] with job = ["clerk", "nurse", "other"]') from error


def _schema(values: Mapping[str, Any]) -> Schema:
    """Return the schema in the values of a file; raise `TypeError` or `ValueError` for others."""
    strange = values.keys() - {*Schema._fields}
    if strange:
        raise ValueError(f"{', '.join(sorted(strange))} is not known here")
    if not str(values.get("source", "")).strip():
        raise ValueError("source is missing: say where ranges and categories are published")
    ranges = tuple(Range(column, float(low), float(high)) for column, (low, high) in values.get("ranges", {}).items())
    lists = tuple(_list(column, names) for column, names in values.get("categories", {}).items())
    endless = [known.column for known in ranges if not isfinite(known.low) or not isfinite(known.high)]
    both = sorted({known.column for known in ranges} & {known.column for known in lists})
    if endless or both:
        raise ValueError(f"the range of {endless[0]} has no end: give two numbers" if endless else
                         f"{both[0]} has a range and a list of categories: keep one of them")
    label, group = values.get("label", ""), values.get("group", "")
    if not isinstance(label, str):
        raise ValueError(f"label is {label!r}: name its column, and list its classes among the categories")
    return Schema(str(values["source"]), ranges, lists, label, group if isinstance(group, str) else as_text(group))


def _list(column: str, names: Any) -> Listed:
    """Return the categories of a column; raise `ValueError` for what is no list of different ones."""
    if not isinstance(names, list) or not names:
        raise ValueError(f"the categories of {column} are {names!r}: give a list")
    made = Listed(column, tuple(map(str, names)))
    twice = repeated(made.categories)
    if twice is not None:
        raise ValueError(f"{column} lists {twice!r} more than once: list each category once")
    return made


def _listed(data: GroupedDataset, lists: Mapping[str, Sequence[str]]) -> GroupedDataset:
    """Replace the features of each column with a list by one for each listed category, sorted."""
    columns, features = data.columns, list[Feature]()
    x = []
    for column, places in groupby(range(len(columns)), key=columns.__getitem__):
        old = list(places)
        made, values = _of_list(data, old, lists[column]) if column in lists else (
            data.encoding.features[old[0]:old[-1] + 1], data.x[:, old[0]:old[-1] + 1])
        features += made
        x.append(values)
    listed = tuple(dict.fromkeys((*data.encoding.listed, *lists)))
    encoding = data.encoding._replace(features=tuple(features), listed=listed)
    return replace(data, x=torch.cat(x, 1), encoding=encoding)  # once, since a copy for each column takes long


def _of_list(data: GroupedDataset, old: Sequence[int], categories: Sequence[str]) -> tuple[list[Feature], Tensor]:
    """Return a column's features by its list, and their values, in the place of the `old` ones."""
    features = data.encoding.features
    column = features[old[0]].column
    known, gone = sorted(set(categories)), {each.category for each in data.encoding.left_out if each.column == column}
    x = torch.zeros(len(data), len(known), dtype=data.x.dtype)
    for at in old:
        place = position(str(features[at].category), known)
        if place >= 0:
            x[:, place] += data.x[:, at]
    kept = [at for at, name in enumerate(known) if name not in gone]
    return [Feature(column, known[at]) for at in kept], x if len(kept) == len(known) else x[:, kept]


class Agreement(NamedTuple):
    """What is known of every node's table.

    Args:
        label: Column to predict, which the schema lists.
        attributes: Columns of the groups, which the schema lists, or which have bands.
        schema: Ranges of numbers and lists of categories.
        without: Columns of the schema that are not read, or categories that are no features.
        participant: Column that names the person of each record, or None.
        weight: Column with the weight of each record, or None.
        missing: What happens to rows with missing values.
        asked: What is said of the files.
        site: Column of a node's own that names the site of each record, or None; other nodes do not know of it.
    """

    label: str
    attributes: tuple[str, ...]
    schema: Schema
    without: tuple[str, ...]
    participant: str | None
    weight: str | None
    missing: Missing
    asked: Asked
    site: str | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        """The features that are numbers."""
        return tuple(known.column for known in self.schema.ranges if known.column not in self._no_features)

    @property
    def lists(self) -> dict[str, tuple[str, ...]]:
        """The categories of the other features, sorted, by column."""
        return {known.column: tuple(sorted(set(known.categories))) for known in self.schema.categories
                if known.column not in self._no_features}

    @property
    def banded(self) -> tuple[str, ...]:
        """The columns of groups that are bands of numbers."""
        return tuple(name for name in self.attributes if name in self.bands)

    @property
    def bands(self) -> dict[str, tuple[float, ...]]:
        """The lower ends of bands, by column."""
        return {self.attributes[0] if name == ALL else name: ends for name, ends in self.asked.bands}

    @property
    def columns(self) -> list[str]:
        """All columns that are read, each once."""
        others = (self.label, *self.attributes, self.participant, self.weight, self.site)
        return [*dict.fromkeys((*self.numbers, *self.lists, *filter(None, others)))]

    def names(self, column: str) -> tuple[str, ...]:
        """Return the names of classes or groups in the order of their numbers.

        Args:
            column: Column of the label, or of groups.

        Raises:
            ValueError: If the schema does not list them.
        """
        if column in self.banded:
            return tuple(band_names(self.bands[column]))
        names = dict(self.schema.categories).get(column, ())
        if len(set(names)) < 2 or len(set(names)) < len(names):
            raise ValueError(f"partition is \"nodes\", and the schema lists {list(names)} for {column}, whose values "
                             f"make classes or groups: list two or more, for example categories = {{ {column} = "
                             '["no", "yes"] }, or make a schema with `fedfair data schema`')
        return names

    @property
    def _no_features(self) -> set[str | None]:
        """The columns that are read for something else, or not at all."""
        return {self.label, self.participant, self.weight} | ({*self.without} - {*self.attributes})
