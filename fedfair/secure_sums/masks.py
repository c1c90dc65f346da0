"""Masks: uniform integers modulo 2^64, expanded from a key.

A party at place u of the parties U sends

    y_u = x_u + M(b_u) + sum_{v in U, v > u} M(k_uv) - sum_{v in U, v < u} M(k_uv)   (mod 2^64)

with a seed b_u of its own and keys k_uv = k_vu that it shares with each other party. In the sum over U the pairs
cancel. M(k) is the key stream of ChaCha20 (RFC 8439), so y_u cannot be told from uniform numbers by anyone who lacks
b_u, or lacks one k_uv. Each key is used for one mask of one sum: with a second use the difference of two messages would
be that of two secrets.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedfair.secure_sums.keys import agreed, derived

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
