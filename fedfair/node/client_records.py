"""A client's records as an existing app has them: three tensors, or a DataLoader that gives them in batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

Loader = DataLoader[Any]


class ClientRecords(NamedTuple):
    """Features `[n, ...]`, targets `[n, ...]` and groups by number `[n]`."""

    x: Tensor
    y: Tensor
    group: Tensor

    @classmethod
    def of(cls, x: Tensor | Loader, y: Tensor | None, group: Tensor | None) -> ClientRecords:
        """Take three tensors as they are, or read a loader.

        Args:
            x: Features, or a loader whose batches are (features, targets, groups).
            y: Targets; None with a loader.
            group: Groups; None with a loader.

        Raises:
            ValueError: For a part that is missing, or a loader that draws a record twice or gives other batches.
        """
        if isinstance(x, Tensor):
            if y is None or group is None:
                raise ValueError("x is a tensor, but y or group is missing: give all three, or a DataLoader in place "
                                 "of x")
            return cls(x, y, group)
        if y is not None or group is not None:
            raise ValueError("a loader gives features, targets and groups by itself: leave y and group out")
        if not isinstance(x, DataLoader):
            raise ValueError(f"x is a {type(x).__name__}: give a tensor, or a torch DataLoader")
        return cls(*_read(x))


def _read(loader: Loader) -> tuple[Tensor, Tensor, Tensor]:
    """Return all records that a loader can draw, each once, whatever batches it makes."""
    batches = list(loader if isinstance(loader.dataset, IterableDataset) else _each_once(loader))
    for batch in batches:
        three = isinstance(batch, tuple | list) and len(batch) == 3
        if not (three and all(isinstance(part, Tensor) for part in batch)):
            raise ValueError(f"the loader gives a {type(batch).__name__} that is no (features, targets, groups): let "
                             "its dataset give these three for each record")
    if not batches:
        raise ValueError("the loader gives no records: give tensors of no rows for a client without records")
    x, y, group = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return x, y, group


def _each_once(loader: Loader) -> Loader:
    """Return a loader of the same records in which each occurs once.

    Raises `ValueError` for a sampler that draws some twice: such a record would count for two, under the noise for one.
    """
    sampler = loader.batch_sampler
    own = sampler is not None and type(sampler) is not BatchSampler
    rows = [row for batch in sampler for row in batch] if own and sampler else list(loader.sampler)
    if len(set(rows)) < len(rows):
        raise ValueError(f"the loader's {type(sampler if own else loader.sampler).__name__} draws a record more than "
                         "once, but its noise would be that for one: leave the sampler out; batches are drawn by the "
                         "plan")
    return DataLoader(loader.dataset, batch_size=1024, sampler=rows, collate_fn=loader.collate_fn)
