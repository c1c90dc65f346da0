"""The server's part of a secure sum: take the masks away that do not cancel, from shares of those who are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fedfair.secure_sums.keys import public_key
from fedfair.secure_sums.masks import Words, own_mask, pair_masks
from fedfair.secure_sums.sharing import joined


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
