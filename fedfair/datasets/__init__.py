"""Data sets by name; each source returns a `GroupedDataset` and names its published variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedfair.datasets import adult, bank, celeba, compas, credit, digits, dutch, law, mnist, shakespeare
from fedfair.datasets.grouped import GroupedDataset, Parts
from fedfair.registry import Registry

__all__ = ["DATASETS", "GroupedDataset", "Parts", "Source"]


@dataclass(frozen=True)
class Source:
    """Where a data set comes from: `load(protected attribute or None)`, and its variants as records kept by group.

    `not_private` says what else was learned from its records without noise.
    """

    load: Callable[[str | None], GroupedDataset]
    variants: Mapping[str, Mapping[str, int]]
    not_private: tuple[str, ...] = ()


DATASETS: Registry[Source] = Registry("data set")
for _module in (adult, bank, celeba, compas, credit, digits, dutch, law, mnist):
    DATASETS.register(_module.__name__.rpartition(".")[2])(Source(_module.load, _module.VARIANTS))
DATASETS.register("shakespeare")(Source(shakespeare.load, shakespeare.VARIANTS, shakespeare.NOT_PRIVATE))
