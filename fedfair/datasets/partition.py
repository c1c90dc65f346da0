"""Deal records to clients: by protected group, or to sites that mix the groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedfair.datasets.grouped import Parts
from fedfair.mechanisms.randomness import generator


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
