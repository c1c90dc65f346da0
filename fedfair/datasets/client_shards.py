"""What each client of a node holds: some rows of records that all lie together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedfair.datasets.grouped import PARTS, GroupedDataset, Parts


class Shares(Mapping[int, Parts]):
    """Clients by number, in ascending order, and the records of each.

    `together` holds the records of all, in the order of the clients `numbers` `[m]`; `sizes` says by part how many are
    whose, `[m]` each. A client's own records are a view of them, made when somebody asks: besides the records
    themselves, a client costs a few numbers.
    """

    def __init__(self, together: Parts, numbers: Tensor, sizes: Mapping[str, Tensor]) -> None:
        self.together, self.numbers = together, numbers
        self._places = {number: place for place, number in enumerate(numbers.tolist())}
        self._ends = {part: [0, *held.cumsum(0).tolist()] for part, held in sizes.items()}

    @classmethod
    def dealt(cls, parts: Parts, holders: Mapping[str, Tensor], clients: int, node: int = 0, nodes: int = 1) -> Shares:
        """The shares of the clients node, node + nodes, ... of all `clients`.

        `holders` says by part whose each record is, `[n]` each. Every client's records stay in their order.
        """
        here, sizes = [], {}
        for part, data in parts:
            rows = (holders[part] % nodes == node).nonzero().flatten()
            here.append(data.take(rows[holders[part][rows].argsort(stable=True)]))
            sizes[part] = torch.bincount(holders[part], minlength=clients)[node::nodes]
        return cls(Parts(*here), torch.arange(node, max(clients, node), nodes), sizes)

    @classmethod
    def joined(cls, clients: Mapping[int, Parts]) -> Shares:
        """The shares of at least one client whose records lie apart."""
        held = [clients[number] for number in sorted(clients)]
        together = Parts(*(_joined([getattr(parts, part) for parts in held]) for part in PARTS))
        sizes = {part: torch.tensor([len(getattr(parts, part)) for parts in held]) for part in PARTS}
        return cls(together, torch.tensor(sorted(clients)), sizes)

    def __getitem__(self, number: int) -> Parts:
        """One client's records."""
        return Parts(*(data.take(self.rows(number, part)) for part, data in self.together))

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, number: int, part: str = "train") -> slice:
        """Where one client's records lie in `together`; raises `KeyError` for a client that is not here."""
        place, ends = self._places[number], self._ends[part]
        return slice(ends[place], ends[place + 1])

    def training(self, number: int) -> GroupedDataset:
        """One client's training records."""
        return self.together.train.take(self.rows(number))

    def holder(self, row: int, part: str = "train") -> int:
        """The client whose record lies at a row of `together`."""
        return int(self.numbers[bisect_right(self._ends[part], row) - 1])

    def group_sizes(self, part: str) -> Tensor:
        """How many records of each of K groups each client has: `[m, K]`."""
        data: GroupedDataset = getattr(self.together, part)
        owner = torch.repeat_interleave(torch.arange(len(self)), torch.tensor(self._ends[part]).diff())
        groups = len(data.names)
        return torch.bincount(owner * groups + data.group, minlength=len(self) * groups).view(len(self), groups)


def _joined(parts: list[GroupedDataset]) -> GroupedDataset:
    """The records of several data sets of one kind, in order."""
    x, y, group, records, participant = (torch.cat([getattr(part, name) for part in parts])
                                         for name in ("x", "y", "group", "records", "participant"))
    return replace(parts[0], x=x, y=y, group=group, records=records, participant=participant)
