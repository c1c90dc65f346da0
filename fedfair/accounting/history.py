"""How a ledger grew: what had been guaranteed and spent at points of the training."""

from __future__ import annotations

from copy import copy

from fedfair.accounting.ledger import Ledger


def after(ledger: Ledger, share: float) -> Ledger:
    """The ledger as it stood after a share (0 to 1) of the training: of every client's steps, if they train alone.

    Raises `ValueError` for another share.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}: it must be from 0 to 1")
    earlier = copy(ledger)
    earlier.log = ledger.log.prefix(share)
    return earlier
