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


def _published(name: str) -> Source:
    """Return the source in the module called `name`, which is imported now.

    Importing pandas takes half a second, and a client that answers one message in its own process may not need it.
    """
    module = import_module(f"fedfair.datasets.published.{name}")
    return Source(module.load, module.VARIANTS, getattr(module, "PUBLIC", None),
                  next(iter(getattr(module, "GROUPS", ())), None))


DATASETS: Registry[Source] = Registry("data set")
for _name in ("adult", "bank", "celeba", "compas", "credit", "digits", "dutch", "law", "mnist", "shakespeare"):
    DATASETS.register_later(_name, partial(_published, _name))
