"""Random generators derived from (seed, purpose, client, step), so that no draw depends on what ran before it."""

from __future__ import annotations

from hashlib import blake2b

import torch

_ODD = 0x9E3779B1  # any odd number permutes the 32-bit integers by multiplication


def key(*parts: int | str) -> int:
    """A 64-bit number that depends on every part and on their order."""
    return int.from_bytes(blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest(), "big")


def generator(seed: int, purpose: str, client: int = 0, step: int = 0) -> torch.Generator:
    """A generator for one purpose ("noise", "counts", "model") of one client at one step.

    PyTorch seeds its CPU generator with 32 bits. Within one (seed, purpose, client) no two of the first 2^32 steps
    share a seed: the step moves through a permutation of them.
    """
    stream = key(seed, purpose, client) & 0xFFFFFFFF
    return torch.Generator().manual_seed((stream + step) * _ODD & 0xFFFFFFFF)
