"""Sums in whole steps of the grid of discrete noise, which add up modulo 2^64 without an error.

n clients on several nodes each add a discrete Gaussian of deviation s = sigma D (1 + 2^-12) / sqrt(n), where one record
changes the exact sum of d numbers by at most D in Euclidean norm. The grid step is g = s / 2^40, for all the same.
Each node rounds the sum over its clients to the grid once, adds its clients' draws, and only sums over nodes are seen.

Sensitivity. One record is on one node. Rounding moves each number of that node's sum by at most g / 2, so two
neighbours' sums in whole steps differ by at most (D + g sqrt(d) + 2 B^2 u D) / g, with the errors of floating point of
`fedfair.mechanisms.noise.add_discrete_gaussian` for B records on one node. The noise of n shares has the deviation
sqrt(n) 2^40 = sigma D (1 + 2^-12) / g steps. So the multiplier is at least sigma where

    g sqrt(d) / D + 2 B^2 u <= 2^-12,

which `refuse_misfit` checks. Rounding is to nearest, by every node for itself: no draw is spent on it, and nothing is
conditioned on (Kairouz, Liu and Steinke 2021 round at random, and condition, since their steps are coarse).

A sum of discrete Gaussians. With t = 10 sum_{k < n} exp(-2 pi^2 r^2 k / (k + 1)), a sum of n draws of parameter r has
for shifts by v in Z^d a Renyi divergence of at most a |v|^2 / (2 n r^2) + t d at every order a (their Theorem 1): that
of the Gaussian but for t d. With r = 2^40, t is below exp(-10^25).

Modulus. What is seen is the sum modulo 2^64, a function of the sum: wrapping costs no privacy. Nor does it happen:
the exact sum stays below 2^62 steps, by the bound of `refuse_misfit` on every number of it, and so does the noise but
with probability 2 d exp(-64^2 / 2), since a sum of n draws is subgaussian with n r^2 (Canonne, Kamath and Steinke 2020,
Corollary 17).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedfair.gradients.layer_gradients import Gradients, shaped
from fedfair.mechanisms.discrete_gaussian import SCALE, discrete_gaussian
from fedfair.mechanisms.marks import releases
from fedfair.mechanisms.noise import MARGIN, MOST_STEPS, grid_step, to_steps
from fedfair.mechanisms.randomness import Source

_DEVIATIONS = 64  # of the noise, for which there is room
_ROUNDOFF = 2.0**-53

Steps = npt.NDArray[np.int64]


@releases
def noisy_steps(sums: Mapping[str, Tensor], deviation: float, sources: Iterable[Source]) -> Steps:
    """Return sums rounded to the grid with discrete noise, in whole steps `[d]`, in the order of the mapping.

    Args:
        sums: Exact sums by name.
        deviation: Standard deviation of one client's share of the noise, above 0.
        sources: Where each client's draws come from.
    """
    step = grid_step(deviation)
    steps: Steps = torch.cat([to_steps(value, step).flatten() for value in sums.values()]).numpy()
    for source in sources:
        steps = steps + discrete_gaussian(len(steps), source)
    return steps


def from_steps(steps: Steps, deviation: float, like: Mapping[str, Tensor]) -> Gradients:
    """Return the sums that whole steps `[d]` stand for.

    Args:
        steps: A sum of what `noisy_steps` returned.
        deviation: Standard deviation of one client's share.
        like: Tensors of the sums' names and shapes, in their order.
    """
    return shaped(torch.from_numpy(steps).double() * grid_step(deviation), like)


def refuse_misfit(deviation: float, sensitivity: float, numbers: int, units: int, most_units: int, shares: int) -> None:
    """Raise `ValueError` for sums whose rounding the noise does not cover, or that 64 bits do not hold.

    Only public numbers decide.

    Args:
        deviation: Standard deviation of one client's share of the noise.
        sensitivity: The most that one record (or participant) adds to the sums, in Euclidean norm, D.
        numbers: Number of sums, d.
        units: Number of all records (or participants).
        most_units: Number of those on the node that has most of them, B.
        shares: Number of shares of the noise in the sum, n.
    """
    if not deviation > 0:
        raise ValueError("a secure sum lies on the grid of its noise, but there is none: take noise")
    step = grid_step(deviation)
    rounding = step * math.sqrt(numbers) / sensitivity + 2 * most_units**2 * _ROUNDOFF
    if rounding > MARGIN:
        raise ValueError(f"rounding {numbers:,} sums over {most_units:,} records on one node changes them by up to "
                         f"{rounding:.2g} of what one record adds, but the noise has room for {MARGIN:.2g}: share the "
                         "records among more nodes, or take less noise")
    if not units * sensitivity / step + _DEVIATIONS * math.sqrt(shares) * SCALE < MOST_STEPS:
        raise ValueError(f"sums over {units:,} records are too large for whole steps of so little noise in 64 bits: "
                         "take more noise, or fewer clients")
