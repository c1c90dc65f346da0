"""One party of a secure sum: what it keeps between the server's four requests, and what it refuses.

The protocol is that of Bonawitz et al. 2017 (Figure 4) against an honest-but-curious server:

1. `begun`: two key pairs, one to seal shares and one for masks; the public keys go to all parties.
2. `shared`: Shamir shares of the secret key for masks and of the seed of the party's own mask, sealed for each party.
3. `masked`: the party's integers under its masks (`fedfair.secure_sums.masks`).
4. `unmasking`: for each party whose masked integers arrived a share of the seed of its own mask, for each other one a
   share of its secret key for masks. Never both for one: with both the server could take all of its masks away.

Each request is answered once, in this order, and for one sum at a time; a new sum forgets the one before. More than
half of the parties are needed to open a mask, so that not even a server that tells two halves of them different things
gets both kinds of shares. That keys are those of the other parties, the server is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedfair.secure_sums.masks import (
    BYTES,
    Words,
    agreed,
    new_secret,
    opened,
    own_mask,
    pair_masks,
    public_key,
    seal,
    split,
)

Stage = Literal["begun", "shared", "masked", "opened"]


@dataclass(frozen=True)
class Party:
    """A party after the latest request that it answered; everything but the two public keys is its secret.

    Attributes:
        name: Name of the sum.
        stage: What it did last.
        sealing: Secret key by which shares are sealed.
        masking: Secret key of the masks that it shares with others.
        seed: Seed of its own mask.
        place: Its place among the parties, from 0.
        threshold: How many shares open a mask.
        sealing_keys: Public keys of all parties, in their order.
        masking_keys: The same of the keys for masks.
        senders: Places of the parties whose shares it holds.
        shares: Its shares of their secrets, that of the seed and then that of the key, in the order of `senders`.
    """

    name: str
    stage: Stage
    sealing: bytes
    masking: bytes
    seed: bytes = b""
    place: int = 0
    threshold: int = 0
    sealing_keys: tuple[bytes, ...] = ()
    masking_keys: tuple[bytes, ...] = ()
    senders: tuple[int, ...] = ()
    shares: tuple[bytes, ...] = ()

    @property
    def public_keys(self) -> tuple[bytes, bytes]:
        """The public keys, to seal and for masks."""
        return public_key(self.sealing), public_key(self.masking)

    def shared(self, name: str, threshold: int, sealing_keys: Sequence[bytes], masking_keys: Sequence[bytes]
               ) -> tuple[Party, list[bytes]]:
        """Return the party with shares dealt, and these, sealed for each party in order, itself included.

        Args:
            name: Name of the sum.
            threshold: How many shares are to open a mask: more than half of the parties.
            sealing_keys: Public keys of all parties, in an order that is the same for all of them.
            masking_keys: The same of the keys for masks.

        Raises:
            ValueError: At another stage, for a threshold that is too small, or without its own keys among the others.
        """
        self._refuse_unless("begun", name)
        parties = len(sealing_keys)
        if not parties < 2 * threshold <= 2 * parties:
            raise ValueError(f"{threshold} of {parties} parties would open a mask: take more than half of them, and at "
                             "most all")
        pairs = list(zip(sealing_keys, masking_keys, strict=True))
        if self.public_keys not in pairs or len({*sealing_keys, *masking_keys}) < 2 * parties:
            raise ValueError("the keys are not those of different parties, of which this is one: send each party's own")
        party = replace(self, stage="shared", seed=new_secret(), place=pairs.index(self.public_keys),
                        threshold=threshold, sealing_keys=tuple(sealing_keys), masking_keys=tuple(masking_keys))
        dealt = zip(split(party.seed, threshold, parties), split(party.masking, threshold, parties), strict=True)
        return party, [seal(party._key_with(to), b"".join(shares), _about(name, party.place, to))
                       for to, shares in enumerate(dealt)]

    def masked(self, name: str, values: npt.NDArray[np.int64], senders: Sequence[int], sealed: Sequence[bytes]
               ) -> tuple[Party, Words]:
        """Return the party that keeps others' shares, and its integers under masks.

        Args:
            name: Name of the sum.
            values: Its integers.
            senders: Places of all parties whose shares arrived, ascending, its own among them.
            sealed: What each of them sealed for this party.

        Raises:
            ValueError: At another stage, for too few senders, or for shares that they did not seal for this party.
        """
        self._refuse_unless("shared", name)
        self._refuse_too_few(senders, range(len(self.sealing_keys)))
        texts = zip(senders, sealed, strict=True)
        shares = tuple(opened(self._key_with(u), text, _about(name, u, self.place)) for u, text in texts)
        others = {v: self.masking_keys[v] for v in senders if v != self.place}
        hidden = values.view(np.uint64) + own_mask(self.seed, len(values))
        hidden = hidden + pair_masks(self.masking, self.place, others, len(values))
        return replace(self, stage="masked", senders=tuple(senders), shares=shares), hidden

    def unmasking(self, name: str, survivors: Sequence[int]) -> tuple[Party, list[bytes]]:
        """Return the party without its secrets, and one share for each sender of shares, in their order.

        Args:
            name: Name of the sum.
            survivors: Places of the parties whose masked integers arrived, ascending, its own among them.

        Raises:
            ValueError: At another stage, or for too few survivors.
        """
        self._refuse_unless("masked", name)
        self._refuse_too_few(survivors, self.senders)
        told = [share[:BYTES] if u in survivors else share[BYTES:]
                for u, share in zip(self.senders, self.shares, strict=True)]
        return Party(name, "opened", b"", b""), told

    def _key_with(self, other: int) -> bytes:
        """Return the key by which this party and another seal shares for each other."""
        return agreed(self.sealing, self.sealing_keys[other], "shares")

    def _refuse_unless(self, stage: Stage, name: str) -> None:
        """Raise `ValueError` for a request about another sum, or out of turn: a second answer would tell more."""
        if name != self.name:
            raise ValueError(f"the request is for the secure sum {name!r}, but the latest is {self.name!r}")
        if stage != self.stage:
            raise ValueError(f"the secure sum is {self.stage}, so that this request is not its next, or was answered: "
                             "start the sum anew")

    def _refuse_too_few(self, places: Sequence[int], among: Sequence[int]) -> None:
        """Raise `ValueError` unless these are at least `threshold` places, ascending, with this party's own."""
        if not (list(places) == sorted({*places} & {*among}) and self.place in places):
            raise ValueError(f"the parties {list(places)} are not different ones of this sum with this one among them")
        if len(places) < self.threshold:
            raise ValueError(f"only {len(places)} parties are left, but the secure sum needs {self.threshold}: nothing "
                             "is sent")


def begun(name: str) -> Party:
    """Return a party with new keys."""
    return Party(name, "begun", new_secret(), new_secret())


def _about(name: str, sender: int, receiver: int) -> str:
    """Return what a sealed text is about."""
    return f"secure sum {name}, shares of party {sender} for party {receiver}"
