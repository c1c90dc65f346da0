"""Masks: uniform integers modulo 2^64, expanded from a key.

A party at place u of the parties U sends

    y_u = x_u + M(b_u) + sum_{v in U, v > u} M(k_uv) - sum_{v in U, v < u} M(k_uv)   (mod 2^64)

with a seed b_u of its own and keys k_uv = k_vu that it shares with each other party. In the sum over U the pairs
cancel. M(k) is the key stream of ChaCha20 (RFC 8439), so y_u cannot be told from uniform numbers by anyone who lacks
b_u, or lacks one k_uv. Each key is used for one mask of one sum: with a second use the difference of two messages would
be that of two secrets.

The server's part of a secure sum: take the masks away that do not cancel, from shares of those who are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedfair.secure_sums.keys import agreed, derived, public_key
from fedfair.secure_sums.sharing import joined

Words = npt.NDArray[np.uint64]
"""Integers modulo 2^64, which numpy's arithmetic of this type is."""

_START = bytes(16)  # counter and nonce: a key makes one stream


def own_mask(seed: bytes, numbers: int) -> Words:
    """Return the mask `[numbers]` of a party's own seed."""
    return _stream(derived(seed, "own mask"), numbers)


def pair_masks(secret: bytes, place: int, keys: Mapping[int, bytes], numbers: int) -> Words:
    """Return the sum of the masks `[numbers]` that one party shares with others, each with its sign.

    Args:
        secret: The party's secret key for masks.
        place: Its place among all parties.
        keys: Public keys of the others by place.
        numbers: Number of integers.
    """
    total = np.zeros(numbers, dtype=np.uint64)
    for other, public in keys.items():
        mask = _stream(agreed(secret, public, "pair mask"), numbers)
        total = total + mask if other > place else total - mask
    return total


def _stream(key: bytes, numbers: int) -> Words:
    """Expand a key that is used for nothing else into uniform integers."""
    stream = Cipher(ChaCha20(key, _START), mode=None).encryptor().update(bytes(8 * numbers))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def opened_sum(masked: Mapping[int, Words], keys: Sequence[bytes], senders: Sequence[int],
               shares: Mapping[int, Sequence[bytes]], threshold: int) -> npt.NDArray[np.int64]:
    """Return the sum of the parties' integers, as numbers from -2^63 to 2^63 - 1.

    Args:
        masked: Masked integers `[d]` by place of the party: those of the survivors.
        keys: Public keys for masks of all parties, in their order.
        senders: Places of the parties that dealt shares; who is among them and not in `masked` was lost.
        shares: What `Party.unmasking` returned, by place.
        threshold: How many shares open a mask.

    Raises:
        ValueError: For too few shares, or shares that give another secret than the one that was shared.
    """
    if len(shares) < threshold:
        raise ValueError(f"only {len(shares)} parties sent shares, but {threshold} are needed to open the sum")
    used = sorted(shares)[:threshold]
    numbers = len(next(iter(masked.values())))
    total = np.zeros(numbers, dtype=np.uint64)
    for hidden in masked.values():
        total = total + hidden
    for at, sender in enumerate(senders):
        secret = joined({place: shares[place][at] for place in used})
        if sender in masked:
            total = total - own_mask(secret, numbers)
        else:
            total = total + _left_over(secret, sender, keys, masked)
    return total.view(np.int64)


def _left_over(secret: bytes, lost: int, keys: Sequence[bytes], masked: Mapping[int, Words]) -> Words:
    """Return what is to be added for a lost party: the pair masks that it would have sent with the survivors."""
    if public_key(secret) != keys[lost]:
        raise ValueError(f"the shares of party {lost}'s key give another key: one of those who sent them did not send "
                         "what was shared")
    numbers = len(next(iter(masked.values())))
    return pair_masks(secret, lost, {place: keys[place] for place in masked}, numbers)
