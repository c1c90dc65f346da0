"""Gaussian noise, and who adds which share of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

import torch
from torch import Tensor

from fedfair.layers import Gradients


class Trust(StrEnum):
    """Who sees sums before they carry noise: the server, nobody (with secure aggregation), or nobody at all."""

    CENTRAL = "central"
    DISTRIBUTED = "distributed"
    LOCAL = "local"


def client_share(trust: Trust, clients: int) -> float:
    """What each of n clients adds, as a multiple of the standard deviation that one release needs.

    Distributed shares of 1/sqrt(n) add up to one full noise; local noise is full at every client.
    """
    return {Trust.CENTRAL: 0.0, Trust.DISTRIBUTED: 1 / math.sqrt(clients), Trust.LOCAL: 1.0}[trust]


def server_share(trust: Trust) -> float:
    """What the server adds, as a multiple of the standard deviation that one release needs."""
    return 1.0 if trust is Trust.CENTRAL else 0.0


def add_gaussian(values: Mapping[str, Tensor], deviation: float, generator: torch.Generator) -> Gradients:
    """`values + N(0, deviation^2)`, independently for every number, drawn in the order of the mapping.

    A deviation of 0 returns the values and draws nothing. The textbook Gaussian in floating point: for simulation.
    """
    if deviation == 0:
        return dict(values)
    first = next(iter(values.values()))
    draws = torch.randn(sum(v.numel() for v in values.values()), generator=generator, dtype=first.dtype)
    pieces = torch.split(draws.to(first.device), [v.numel() for v in values.values()])
    noise = {name: piece.view_as(value) for (name, value), piece in zip(values.items(), pieces, strict=True)}
    return {name: torch.add(value, noise[name], alpha=deviation, out=noise[name]) for name, value in values.items()}
