"""Shamir's secret sharing (1979) of secrets of 32 bytes: any t shares give the secret, fewer say nothing of it.

A polynomial of degree t - 1 over GF(2^128) for each half of the secret, by pycryptodome.
"""

from __future__ import annotations

from collections.abc import Mapping

from Crypto.Protocol.SecretSharing import Shamir

_HALF = 16


def split(secret: bytes, threshold: int, parties: int) -> list[bytes]:
    """Return one share of 32 bytes for each party.

    Args:
        secret: 32 bytes.
        threshold: How many shares give the secret, t.
        parties: Number of shares.
    """
    halves = [Shamir.split(threshold, parties, half, ssss=False) for half in (secret[:_HALF], secret[_HALF:])]
    return [first + second for (_, first), (_, second) in zip(*halves, strict=True)]


def joined(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of exactly t shares; fewer, or a wrong one, give 32 other bytes.

    Args:
        shares: Shares by the place of their party among all, from 0.
    """
    first = Shamir.combine([(place + 1, share[:_HALF]) for place, share in shares.items()], ssss=False)
    second = Shamir.combine([(place + 1, share[_HALF:]) for place, share in shares.items()], ssss=False)
    return first + second
