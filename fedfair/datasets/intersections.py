"""Grouping by two sensitive attributes at once: every intersection of their groups is a group."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedfair.datasets.grouped import GroupedDataset


def crossed(one: GroupedDataset, other: GroupedDataset) -> GroupedDataset:
    """Return the records of `one`, grouped by those intersections of its groups with the groups of `other` that occur.

    `other` must hold the same records in the same order. Raises `ValueError` if it has another number of records.
    """
    if len(one) != len(other):
        raise ValueError(f"groups of {len(one)} and of {len(other)} records cannot be crossed")
    pairs = one.group * len(other.names) + other.group
    occurring = torch.bincount(pairs).nonzero().flatten()
    names = tuple(f"{one.names[pair // len(other.names)]} & {other.names[pair % len(other.names)]}"
                  for pair in occurring.tolist())
    return replace(one, group=torch.searchsorted(occurring, pairs), names=names)
