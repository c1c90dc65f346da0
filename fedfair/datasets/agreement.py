"""What server and nodes know of the nodes' tables before any file is opened: everything but the records."""

from __future__ import annotations

from typing import NamedTuple

from fedfair.datasets.columns.bands import band_names
from fedfair.datasets.columns.convention import ALL, Asked
from fedfair.datasets.schema import Schema
from fedfair.datasets.split import Missing


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
