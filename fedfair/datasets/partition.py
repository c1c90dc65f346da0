"""Who holds which records: clients by protected group, or sites that mix the groups."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedfair.mechanisms.randomness import generator


def by_group(group: Tensor, groups: int, clients: int) -> Tensor:
    """Each record's client, when no client holds more groups than it must: `[n]`.

    With K clients each holds one group; with fewer, client c holds groups c, c + clients, ...; with more, group k is
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
    """Each record's client, when records are dealt at random and as evenly as can be: `[n]`."""
    holder = torch.empty(records, dtype=torch.long)
    holder[torch.randperm(records, generator=generator(seed, "partition"))] = torch.arange(records) % clients
    return holder


def by_mixture(group: Tensor, groups: int, clients: int, alpha: float, seed: int) -> Tensor:
    """Each record's client, when the sites mix the groups differently, `[n]`: Dirichlet sites (Hsu et al. 2019).

    Of every group, the clients get shares drawn from a symmetric Dirichlet distribution of concentration `alpha`, and
    the group's records are dealt at random in these shares. A large `alpha` gives even sites; with a small one, few
    sites hold most of a group, and a site may hold no record of it, or none at all. The shares depend on the seed
    alone: the parts of a data set are dealt alike.
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
    """The clients' shares of one group: one draw from the symmetric Dirichlet distribution, `[clients]`."""
    draws = np.random.default_rng(generator(seed, "shares", step=group).initial_seed())
    return draws.dirichlet(np.full(clients, alpha))
