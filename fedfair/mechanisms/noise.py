"""Gaussian noise, how it is sampled, and who adds which share of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import torch
from torch import Tensor

from fedfair.gradients.layer_gradients import Gradients, shaped
from fedfair.mechanisms.discrete_gaussian import SCALE, discrete_gaussian
from fedfair.mechanisms.marks import releases
from fedfair.mechanisms.randomness import Source, normal

NoiseName = Literal["gaussian", "discrete"]
"""How noise is sampled: in floating point, or exactly on a grid."""

MARGIN = 2.0**-12
"""By which the grid's noise is larger; see `add_discrete_gaussian`."""

MOST_STEPS = 2.0**62
"""Steps that a sum on the grid stays below, so that it and its noise fit an integer of 64 bits."""


class Trust(StrEnum):
    """Who sees sums before they carry all noise: the server; the server, unless securely aggregated; or nobody."""

    CENTRAL = "central"
    DISTRIBUTED = "distributed"
    LOCAL = "local"


def client_share(trust: Trust, clients: int) -> float:
    """Return what each of n clients adds, as a multiple of the standard deviation that one release needs.

    Distributed shares of 1/sqrt(n) add up to one full noise; local noise is full at every client.
    """
    return {Trust.CENTRAL: 0.0, Trust.DISTRIBUTED: 1 / math.sqrt(clients), Trust.LOCAL: 1.0}[trust]


def server_share(trust: Trust) -> float:
    """Return what the server adds, as a multiple of the standard deviation that one release needs."""
    return 1.0 if trust is Trust.CENTRAL else 0.0


def sum_share(trust: Trust, clients: int) -> float:
    """Return what the sum over n clients and the server carries, as a multiple of what one release needs.

    Central and distributed noise are one full noise, local noise is sqrt(n) of it.
    """
    return math.sqrt(clients) if trust is Trust.LOCAL else 1.0


@releases
def add_noise(noise: NoiseName, values: Mapping[str, Tensor], deviation: float, source: Source) -> Gradients:
    """Return `values` with independent Gaussian noise of standard deviation `deviation` on every number."""
    return {"gaussian": add_gaussian, "discrete": add_discrete_gaussian}[noise](values, deviation, source)


def add_gaussian(values: Mapping[str, Tensor], deviation: float, source: Source) -> Gradients:
    """Return `values + N(0, deviation^2)`, independently for every number, drawn in the order of the mapping.

    A deviation of 0 returns the values and draws nothing. The textbook Gaussian in floating point: its low bits can
    tell more than the theory says (Mironov 2012).
    """
    if deviation == 0:
        return dict(values)
    first = next(iter(values.values()))
    noise = shaped(normal(source, _numbers(values), first.dtype).to(first.device), values)
    return {name: torch.add(value, noise[name], alpha=deviation, out=noise[name]) for name, value in values.items()}


def add_discrete_gaussian(values: Mapping[str, Tensor], deviation: float, source: Source) -> Gradients:
    """Return `values` rounded to a grid, plus exact discrete Gaussian noise on it (Canonne, Kamath and Steinke 2020).

    The grid step is g = s / 2^40, s = deviation (1 + 2^-12), a function of public numbers; the noise has the parameter
    2^40 in units of g, that is s. What leaves is an integer multiple of g whatever the data, so its low bits tell
    nothing.

    Sensitivity. Let one record change the exact sum of d numbers by at most D in Euclidean norm, and let deviation be
    sigma D. Rounding to the nearest multiple of g moves each number by at most g / 2, so the rounded sums of two
    neighbours differ by at most D + g sqrt(d). A fully connected layer sums one term of norm at most D for each of B
    records; in floating point of unit roundoff u this errs by at most B^2 u D (Higham 2002, section 4.2: each number by
    B u times the sum of its terms' sizes), so by 2 B^2 u D between neighbours. The noise is sigma D (1 + 2^-12), so the
    multiplier is at least sigma as long as sigma sqrt(d) 2^-39 + 2 B^2 u <= 2^-12. With float64 (u = 2^-53), this holds
    for batches of up to a million records; with float32 only up to some dozens, so `Strategy` refuses it. Beyond this
    margin, the errors by which each record's gradient is computed and clipped are not covered.

    Privacy. At integer orders the Renyi divergence between discrete Gaussians shifted by integers is the Gaussian's
    (their Proposition 5), and sampling enters only through these. For the other accountants: the rounded continuous
    Gaussian, which is post-processing of a Gaussian, differs from this one by less than d / (24 * 2^80) in total
    variation, 4e-21 for 100,000 parameters: nothing beside any delta in use.
    """
    if deviation == 0:
        return dict(values)
    step = grid_step(deviation)
    drawn = shaped(torch.from_numpy(discrete_gaussian(_numbers(values), source)), values)
    return {name: ((to_steps(value, step) + drawn[name]).double() * step).to(value) for name, value in values.items()}


def grid_step(deviation: float) -> float:
    """Return the step of the grid on which discrete noise of a standard deviation lies."""
    return deviation * (1 + MARGIN) / SCALE


def to_steps(value: Tensor, step: float) -> Tensor:
    """Return `value` rounded to the grid, in whole steps.

    Raises `ValueError` for values beyond the integers that floating point holds, which no clipped sum is.
    """
    steps = (value.detach().cpu().double() / step).round()
    if not bool((steps.abs() < MOST_STEPS).all()):
        raise ValueError("a sum is not finite or too large for the grid of discrete noise: clip it, or take more noise")
    return steps.to(torch.int64)


def most_records(deviation: float) -> float:
    """Return how many records a sum on the grid has room for, each of which adds at most 1.

    Args:
        deviation: Standard deviation of its noise.

    Examples:
        >>> f"{most_records(1.0):,.0f}"
        '4,195,328'
    """
    return MOST_STEPS * grid_step(deviation)


def no_room(rows: int, most: int) -> ValueError:
    """Return the error for more rows than sums on the grid have room for, by public numbers alone.

    Args:
        rows: Number of rows, or of what else adds to a sum.
        most: How many there is room for.
    """
    return ValueError(f"the table has {rows:,} rows, but at this epsilon the sums of at most {most:,} have room on "
                      "the grid of discrete noise: take fewer rows or a smaller epsilon, or --set noise=gaussian")


def _numbers(values: Mapping[str, Tensor]) -> int:
    """Count the numbers that the tensors hold together."""
    return sum(value.numel() for value in values.values())
