"""Who holds which training records: clients by protected group, sites that mix the groups, or the participants."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfair.randomness import generator


def by_group(group: Tensor, groups: int, clients: int) -> list[Tensor]:
    """Rows of each client when no client holds more groups than it must.

    With K clients each holds one group; with fewer, client c holds groups c, c + clients, ...; with more, group k is
    dealt to clients k, k + K, ....
    """
    holder = group % clients
    if clients > groups:
        for k in range(groups):
            rows = (group == k).nonzero().flatten()
            sharing = len(range(k, clients, groups))
            holder[rows] = k + groups * (torch.arange(len(rows)) % sharing)
    return [(holder == c).nonzero().flatten() for c in range(clients)]


def by_participant(participant: Tensor, participants: int) -> list[Tensor]:
    """Rows of each client when every participant is a client of its own, numbered alike."""
    sizes = torch.bincount(participant, minlength=participants)
    return list(torch.split(participant.argsort(stable=True), sizes.tolist()))


def by_site(records: int, clients: int, seed: int) -> list[Tensor]:
    """Rows of each client when records are dealt at random and as evenly as can be."""
    order = torch.randperm(records, generator=generator(seed, "partition"))
    return [order[c::clients].sort().values for c in range(clients)]
