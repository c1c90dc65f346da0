"""Data sets by name; each source returns a `GroupedDataset` and names its published variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from fedfair.plugins.lazy import lazy
from fedfair.plugins.registry import Registry

if TYPE_CHECKING:
    from fedfair.datasets.grouped import GroupedDataset, Parts
    from fedfair.datasets.schema import Schema

__all__ = ["DATASETS", "GroupedDataset", "Parts", "Source"]

__getattr__ = lazy(__name__, dict.fromkeys(("GroupedDataset", "Parts"), f"{__name__}.grouped"))


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    `load(sensitive attribute or None)` returns the data, `variants` are the numbers of records that published variants
    keep of each group, `public` is what everybody knows of a table's columns, and `attribute` is the column that makes
    its groups where no other is asked for.
    """

    load: Callable[[str | None], GroupedDataset]
    variants: Mapping[str, Mapping[str, int]]
    public: Schema | None = None
    attribute: str | None = None


_PUBLISHED = {
    "images": ("celeba", "digits", "mnist"),
    "shakespeare": ("shakespeare",),
    "tables": ("adult", "bank", "compas", "credit", "dutch", "law"),
}
"""The published data sets, by the module of `fedfair.datasets.published` whose `SOURCES` have them."""


def _source(module: str, name: str) -> Source:
    """Return a source of a module, which is imported now.

    Importing pandas takes half a second, and a client that answers one message in its own process may not need it.
    """
    source: Source = import_module(f"fedfair.datasets.published.{module}").SOURCES[name]
    return source


DATASETS: Registry[Source] = Registry("data set")
for _module, _names in _PUBLISHED.items():
    for _name in _names:
        DATASETS.register_later(_name, partial(_source, _module, _name))
