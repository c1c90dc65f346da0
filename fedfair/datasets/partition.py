"""Deal records to clients: by protected group, or to sites that mix the groups.

The records of a node's clients: all together, and for each client the rows that it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedfair.datasets.grouped import PARTS, GroupedDataset, Parts
from fedfair.mechanisms.randomness import generator

_AT_A_TIME = 2**20  # records whose clients are written out

def by_group(group: Tensor, groups: int, clients: int) -> Tensor:
    """Return each record's client, `[n]`, when no client holds more groups than it must.

    With K clients, each holds one group. With fewer, client c holds groups c, c + clients, .... With more, group k is
    dealt to clients k, k + K, ....
    """
    holder = group % clients
    if clients > groups:
        for k in range(groups):
            rows = (group == k).nonzero().flatten()
            sharing = len(range(k, clients, groups))
            holder[rows] = k + groups * (torch.arange(len(rows)) % sharing)
    return holder


def by_site(records: int, clients: int, seed: int) -> Tensor:
    """Return each record's client, `[n]`, when records are dealt at random and as evenly as possible."""
    holder = torch.empty(records, dtype=torch.long)
    holder[torch.randperm(records, generator=generator(seed, "partition"))] = torch.arange(records) % clients
    return holder


def by_mixture(group: Tensor, groups: int, clients: int, alpha: float, seed: int) -> Tensor:
    """Return each record's client, `[n]`, when sites mix the groups differently: Dirichlet sites (Hsu et al. 2019).

    Each group's records are dealt at random, in shares that are drawn from a symmetric Dirichlet distribution of
    concentration `alpha`. A large `alpha` gives even sites. With a small one, few sites hold most of a group, and a
    site may have no record of it, or no record at all. The shares depend on the seed alone, so all parts of a data set
    are dealt in the same shares.
    """
    order = torch.randperm(len(group), generator=generator(seed, "partition"))
    holder = torch.empty(len(group), dtype=torch.long)
    for k in range(groups):
        rows = order[group[order] == k]
        ends = np.cumsum(_shares(alpha, clients, seed, k))[:-1] * len(rows)
        for client, dealt in enumerate(rows.tensor_split(ends.round().astype(int).tolist())):
            holder[dealt] = client
    return holder


def _shares(alpha: float, clients: int, seed: int, group: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Draw the clients' shares of one group from the symmetric Dirichlet distribution, `[clients]`."""
    draws = np.random.default_rng(generator(seed, "shares", step=group).initial_seed())
    return draws.dirichlet(np.full(clients, alpha))


def numbered_apart(parts: Parts, node: int) -> Parts:
    """Return a node's own records with numbers that no other node's records have, as sampling needs.

    Args:
        parts: Records, numbered from 0.
        node: Number of the node.
    """
    train, valid, test = (replace(data, records=data.records + (node << 32)) for _, data in parts)
    return replace(parts, train=train, valid=valid, test=test)


class Shares(Mapping[int, Parts]):
    """Clients by number, in ascending order, and the records of each.

    `together` holds the records of all clients, in the order of their `numbers` `[m]`. `sizes` are the numbers of
    records of each client, by part, `[m]` each. A client's records are a view, made when they are looked up: beyond the
    records, a client takes only a few numbers in memory.
    """

    def __init__(self, together: Parts, numbers: Tensor, sizes: Mapping[str, Tensor]) -> None:
        self.together, self.numbers = together, numbers
        self._positions = {number: position for position, number in enumerate(numbers.tolist())}
        self._ends = {part: [0, *held.cumsum(0).tolist()] for part, held in sizes.items()}

    @classmethod
    def dealt(cls, parts: Parts, holders: Mapping[str, Tensor], clients: int, node: int = 0, nodes: int = 1) -> Shares:
        """Return the shares of the clients node, node + nodes, ..., out of all `clients`.

        `holders` are the records' clients, by part, `[n]` each. Each client's records stay in their order.
        """
        held, sizes = [], {}
        for part, data in parts:
            if nodes == 1 and bool((holders[part].diff() >= 0).all()):
                held.append(data)  # as it is: of one client's many records there is no second copy
            else:
                rows = (holders[part] % nodes == node).nonzero().flatten()
                held.append(data.take(rows[holders[part][rows].argsort(stable=True)]))
            sizes[part] = torch.bincount(holders[part], minlength=clients)[node::nodes]
        return cls(Parts(*held), torch.arange(node, max(clients, node), nodes), sizes)

    @classmethod
    def joined(cls, clients: Mapping[int, Parts]) -> Shares:
        """Return the shares of at least one client, whose records are separate so far."""
        held = [clients[number] for number in sorted(clients)]
        together = Parts(*(_joined([getattr(parts, part) for parts in held]) for part in PARTS))
        sizes = {part: torch.tensor([len(getattr(parts, part)) for parts in held]) for part in PARTS}
        return cls(together, torch.tensor(sorted(clients)), sizes)

    def __getitem__(self, number: int) -> Parts:
        """Return one client's records."""
        return Parts(*(data.take(self.rows(number, part)) for part, data in self.together))

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def rows(self, number: int, part: str = "train") -> slice:
        """Return the rows of `together` that are one client's; raise `KeyError` for a client of another node."""
        position, ends = self._positions[number], self._ends[part]
        return slice(ends[position], ends[position + 1])

    def training(self, number: int) -> GroupedDataset:
        """Return one client's training records."""
        return self.together.train.take(self.rows(number))

    def holder(self, row: int, part: str = "train") -> int:
        """Return the client whose record is at a row of `together`."""
        return int(self.numbers[bisect_right(self._ends[part], row) - 1])

    def holders(self, part: str) -> Tensor:
        """Return the client of each record of a part of `together`, `[n]`."""
        return torch.repeat_interleave(self.numbers, torch.tensor(self._ends[part]).diff())

    def group_sizes(self, part: str) -> Tensor:
        """Return the number of each client's records of each of K groups, `[m, K]`."""
        data: GroupedDataset = getattr(self.together, part)
        groups, ends = len(data.names), torch.tensor(self._ends[part][1:])
        counts = torch.zeros(len(self) * groups, dtype=torch.long)
        for rows in torch.split(torch.arange(len(data)), _AT_A_TIME):
            owner = torch.bucketize(rows, ends, right=True)
            counts += torch.bincount(owner * groups + data.group[rows], minlength=len(counts))
        return counts.view(len(self), groups)


def by_own_site(parts: Parts, first: int) -> Shares:
    """Return the shares of one node's clients, from number `first` on: one for each site, or one of all records.

    Args:
        parts: The node's own records.
        first: Number of the first client.
    """
    sites = max(1, len(parts.train.sites))
    holders = {part: data.site if data.sites else torch.zeros(len(data), dtype=torch.long) for part, data in parts}
    dealt = Shares.dealt(parts, holders, sites)
    sizes = {part: torch.bincount(holder, minlength=sites) for part, holder in holders.items()}
    return Shares(dealt.together, dealt.numbers + first, sizes)


def _joined(parts: list[GroupedDataset]) -> GroupedDataset:
    """Join the records of several data sets of one kind, in order."""
    x, y, group, records, participant, weight, site = (torch.cat([getattr(part, name) for part in parts]) for name in (
        "x", "y", "group", "records", "participant", "weight", "site"))
    return replace(parts[0], x=x, y=y, group=group, records=records, participant=participant, weight=weight, site=site)
