"""What ties records together, so that a split drawn at random puts them into one part."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.datasets.grouped import GroupedDataset, Parts

_log = logging.getLogger(__name__)


class Together(NamedTuple):
    """Whether all records of a participant, and exact duplicates, go into one part."""

    participants: bool = True
    duplicates: bool = False


def units(data: GroupedDataset, together: Together) -> Tensor | None:
    """Return the unit that each record goes with, numbered from 0, `[n]`; None if every record goes alone.

    Args:
        data: Records, which name their participants or not.
        together: What goes into one part.
    """
    ties = [data.participant] if together.participants and len(data.participant) else []
    ties += [_kinds(data)] if together.duplicates and len(data) else []
    if not ties:
        return None
    if len(ties) == 1:
        return torch.unique(ties[0], return_inverse=True)[1]  # type: ignore[no-any-return]
    from scipy.sparse import coo_array  # here, because scipy takes time to import, and few splits need it
    from scipy.sparse.csgraph import connected_components

    records, edges = torch.arange(len(data)), torch.cat([_firsts(tie) for tie in ties])
    ones = torch.ones(len(edges), dtype=torch.bool)
    graph = coo_array((ones.numpy(), (records.repeat(len(ties)).numpy(), edges.numpy())), (len(data), len(data)))
    return torch.from_numpy(connected_components(graph, directed=False)[1]).long()


def say_who_is_where(parts: Parts) -> None:
    """Warn, once in a process, of participants with records in the training part and in another one."""
    trained = parts.train.participant
    if any(bool(torch.isin(part.participant, trained).any()) for part in (parts.valid, parts.test)):
        _warn_once("participants have records in several parts: accuracy on the test part is that for people whose "
                   'other records were trained on, not for new people; split_by = "participant" puts all records of a '
                   "participant into one part, unless the source published the parts")


@lru_cache(maxsize=8)
def _warn_once(text: str) -> None:
    """Log a warning that every seed and method of a comparison would repeat."""
    _log.warning(text)


def _kinds(data: GroupedDataset) -> Tensor:
    """Return a number `[n]` that records have in common if they are equal in features, label and group."""
    columns = torch.cat([data.x.flatten(1).double(), data.y.double()[:, None], data.group.double()[:, None]], 1)
    return torch.unique(columns, dim=0, return_inverse=True)[1]  # type: ignore[no-any-return]


def _firsts(tie: Tensor) -> Tensor:
    """Return for each record the row of the first record with the same number, `[n]`."""
    order = tie.argsort(stable=True)
    starts = torch.ones(len(tie), dtype=torch.bool)
    starts[1:] = tie[order][1:] != tie[order][:-1]
    firsts = torch.empty_like(order)
    firsts[order] = order[starts][starts.cumsum(0) - 1]
    return firsts
