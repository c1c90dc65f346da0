"""Means with intervals, for figures and tables of a few seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from simulations.statistics.over_seeds import interval

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean and the ends of its interval; the ends are NaN where no interval is known."""

    mean: float
    low: float = math.nan
    high: float = math.nan


def over_seeds(values: Sequence[float], least: float = -math.inf, most: float = math.inf) -> Estimate:
    """Return the mean of independent runs with Student's 95 % interval; without ends for fewer than two runs.

    The interval is cut to `least` and `most`, the values between which the mean must lie.
    """
    numbers = np.array([value for value in values if not math.isnan(value)], dtype=float)
    if len(numbers) == 0:
        return Estimate(math.nan)
    mean = float(numbers.mean())
    if len(numbers) == 1:
        return Estimate(mean)
    low, high = interval(list(numbers))
    return Estimate(mean, max(low, least), min(high, most))


def share_over_seeds(values: Sequence[float]) -> Estimate:
    """Return `over_seeds` of shares, which lie between 0 and 1."""
    return over_seeds(values, 0.0, 1.0)


def of_records(share: float, records: float) -> Estimate:
    """Return a share of test records with Wilson's 95 % score interval (Wilson 1927), for other records of one run."""
    if not records or math.isnan(share):
        return Estimate(share)
    z = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2))
    middle = (share + z**2 / (2 * records)) / (1 + z**2 / records)
    half = z * math.sqrt(share * (1 - share) / records + z**2 / (4 * records**2)) / (1 + z**2 / records)
    # an end that equals the share, at 0 or 1, must not lie on its other side after rounding
    return Estimate(share, min(share, middle - half), max(share, middle + half))
