"""A secure sum over parties in this process, some of which are lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from fedfair.secure_sums.masks import Words, opened_sum
from fedfair.secure_sums.party import Party, begun

Integers = npt.NDArray[np.int64]


class Sum:
    """The parties of one sum, and what the server has received of them; parties are lost before they answer."""

    def __init__(self, parties: int, threshold: int, name: str = "sum") -> None:
        self.name, self.threshold = name, threshold
        self.parties: dict[int, Party] = {u: begun(name) for u in range(parties)}
        pairs = [party.public_keys for party in self.parties.values()]
        self.sealing_keys, self.masking_keys = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.sealed: dict[int, list[bytes]] = {}
        self.masked: dict[int, Words] = {}
        self.shares: dict[int, list[bytes]] = {}

    def deal(self, lost: Collection[int] = ()) -> Sum:
        """Let the parties deal shares."""
        for u in self.parties:
            if u not in lost:
                self.parties[u], self.sealed[u] = self.parties[u].shared(self.name, self.threshold, self.sealing_keys,
                                                                         self.masking_keys)
        return self

    def mask(self, values: Sequence[Integers], lost: Collection[int] = ()) -> Sum:
        """Let those who dealt shares send masked integers."""
        senders = list(self.sealed)
        for u in senders:
            if u not in lost:
                self.parties[u], self.masked[u] = self.parties[u].masked(
                    self.name, values[u], senders, [self.sealed[v][u] for v in senders])
        return self

    def unmask(self, lost: Collection[int] = ()) -> Sum:
        """Let those who sent masked integers send shares."""
        for u in self.masked:
            if u not in lost:
                self.parties[u], self.shares[u] = self.parties[u].unmasking(self.name, list(self.masked))
        return self

    def total(self) -> Integers:
        """Return the sum that the server opens."""
        return opened_sum(self.masked, self.masking_keys, list(self.sealed), self.shares, self.threshold)
