"""Intervals of rates that are read off noisy counts, and of gaps between groups: for sampling error and noise together.

A count n_j of records is known as n_j + z_j, z_j ~ N(0, s^2). A rate r = A / B is a ratio of sums over cells, those of
A among those of B. At the true r the difference A - r B has mean 0 and, by its binomial part and its noise, the
variance

    r (1 - r) B + s^2 (a - 2 b r + c r^2),

where s^2 a and s^2 c are the variances of the noise of A and of B, and s^2 b is their covariance: a = b = p and
c = p + q for independent noise on p cells in A and q others in B. Which cells are added up decides these, and no count
does; many rates are of the same cells, of every group, classifier and cut-off, so that each is computed once. Cells are
those of a confusion table `[C, C]`, by label and decision.

The interval holds every r for which A - r B is within z of these deviations (Fieller 1954; without noise it is Wilson's
of 1927), cut to [0, 1]. Differences and ratios of two groups' rates follow by square-and-add (Newcombe 1998; Zou and
Donner 2008), which keeps their skewness.

A gap between groups is the largest difference of any two, or of those that a person named. A group of which a rate
cannot be told would decide the gap of all by its noise. So it is left out, unless fewer than two are left, or it was
named: who names groups, without looking at records, says in public which of them count.

Tables show a figure with its interval, or as one that cannot be told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from fedfair.fairness.metrics import gaps_over
from fedfair.plugins.registry import unknown

if TYPE_CHECKING:
    import pandas as pd

_WIDE = 0.5  # an interval of a rate that is wider tells nothing


class Estimate(NamedTuple):
    """A figure, or a mean, and the ends of its interval; NaN where there is no value, or no interval is known."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def within(self, low: float, high: float) -> Estimate:
        """Return the estimate cut to a range."""
        return Estimate(*(min(max(number, low), high) if number == number else number for number in self))

    @property
    def told(self) -> bool:
        """Whether there is a value, and the interval says anything."""
        return self.value == self.value and (self.high > 1 or self.high - self.low <= _WIDE)

    @property
    def text(self) -> str:
        """The figure in words: a rate with three decimals, a number of records without."""
        if self.value != self.value:
            return "unknown"
        if not self.told:
            return "cannot be told"
        return f"{self.value:,.0f}" if self.high > 1 else f"{self.value:.3f}"

    @property
    def interval(self) -> str:
        """The interval in words; "" if there is nothing to say."""
        if not self.told:
            return ""
        return f"{self.low:,.0f} to {self.high:,.0f}" if self.high > 1 else f"{self.low:.3f} to {self.high:.3f}"


UNKNOWN = Estimate(math.nan)

Rates = Callable[[str, float], Estimate]
"""A group's figure by its name, with an interval of so many deviations."""

RATIO, WORST = "selection_ratio", "worst_group_accuracy"


def quantile(confidence: float, comparisons: int = 1) -> float:
    """Return how many deviations an interval reaches to both sides.

    Args:
        confidence: Probability with which all intervals hold, for example 0.95.
        comparisons: Number of intervals that are to hold together (Bonferroni).
    """
    return NormalDist().inv_cdf(1 - (1 - confidence) / (2 * comparisons))


class Spread(NamedTuple):
    """Variances of the noise of A and B, and their covariance, in units of that of one cell."""

    part: float
    both: float
    whole: float


def of_cells(own: int, others: int) -> Spread:
    """Return the spread of independent noise.

    Args:
        own: Number of cells in A.
        others: Number of the others in B.
    """
    return Spread(own, own, own + others)


@lru_cache(maxsize=4096)
def cells_of(classes: int, label: int | None, decision: int | None) -> Tensor:
    """Return a mask of the cells of a label and a decision, `[C, C]`; None for any. Nobody may change it in place.

    Args:
        classes: Number of classes, C.
        label: The label.
        decision: The decision.
    """
    chosen = torch.zeros(classes, classes, dtype=torch.bool)
    chosen[label if label is not None else slice(None), decision if decision is not None else slice(None)] = True
    return chosen


@lru_cache(maxsize=4096)
def spread_of(part: bytes, whole: bytes, counted: bytes, alike: int) -> Spread | Estimate:
    """Return how the noise of a rate spreads; or the rate, where it is known whoever the records are.

    It is known where only one of part and rest has cells that can hold a record.

    Args:
        part: Cells of the rate's part, a byte of 0 or 1 for each of `[C, C]`.
        whole: Cells of the whole, those of the part included.
        counted: Cells that can hold a record.
        alike: Number of tables that were made alike.
    """
    classes = math.isqrt(len(whole))
    masks = (torch.tensor([*cells]).view(classes, classes).bool() for cells in (part, whole, counted))
    of, among, held = masks
    own, others = of & held, among & ~of & held
    if not (own.any() and others.any()):
        known = float(own.any())
        return Estimate(known, known, known) if own.any() or others.any() else UNKNOWN
    both = own | others
    return Spread(covariance(own, own, alike), covariance(own, both, alike), covariance(both, both, alike))


def covariance(cells: Tensor, others: Tensor, alike: int) -> float:
    """Return the covariance of the noise of two sums of cells, in units of that of one cell.

    Noise within a label differs from its mean as before; the mean is that of all tables that were made alike.

    Args:
        cells: Mask of the cells of the first sum, `[C, C]`.
        others: Mask of those of the second, `[C, C]`.
        alike: Number of tables that were made alike.
    """
    first, second = cells.double(), others.double()
    means = first.mean(1), second.mean(1)
    apart = ((first - means[0][:, None]) * (second - means[1][:, None])).sum()
    return float(apart + len(first) / alike * (means[0] * means[1]).sum())


def rate(part: float, whole: float, spread: Spread, deviation: float, z: float) -> Estimate:
    """Return a rate with its interval.

    Args:
        part: Noisy sum A.
        whole: Noisy sum B, those of A included.
        spread: How the noise of the two spreads.
        deviation: Standard deviation of the noise on every cell.
        z: Deviations that the interval reaches.

    Returns:
        The rate; NaN, from 0 to 1, if the noise hides whether there are records at all.
    """
    if whole <= 0:
        return Estimate(math.nan, 0.0, 1.0)
    noise = (z * deviation) ** 2
    square = whole**2 + z**2 * whole - noise * spread.whole
    half = part * whole + z**2 * whole / 2 - noise * spread.both
    root = half**2 - square * (part**2 - noise * spread.part)
    value = min(max(part / whole, 0.0), 1.0)
    if square <= 0 or root < 0:
        return Estimate(value, 0.0, 1.0)
    low, high = ((half + sign * math.sqrt(root)) / square for sign in (-1, 1))
    return Estimate(value, min(max(low, 0.0), value), max(min(high, 1.0), value))


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Return first - second with its interval, by square-and-add; the two are of different records."""
    value = first.value - second.value
    low = value - math.hypot(first.value - first.low, second.high - second.value)
    high = value + math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(value, low, high)


def ratio(first: Estimate, second: Estimate) -> Estimate:
    """Return first / second with its interval, by square-and-add of logarithms; both are rates of different records."""
    if not (first.value > 0 and second.value > 0):
        return Estimate(first.value / second.value if second.value > 0 else math.nan, 0.0, math.inf)
    logs = (Estimate(*(math.log(number) if number > 0 else -math.inf for number in each)) for each in (first, second))
    return Estimate(*(math.exp(number) if number < 700 else math.inf for number in difference(*logs)))


def widened(figure: Estimate, factor: float) -> Estimate:
    """Return a figure whose interval reaches so many times as far to both sides."""
    value = figure.value
    return Estimate(value, value - factor * (value - figure.low), value + factor * (figure.high - value))


def size(signed: Estimate) -> Estimate:
    """Return the absolute value of a difference with its interval."""
    near = 0.0 if signed.low <= 0 <= signed.high else min(abs(signed.low), abs(signed.high))
    return Estimate(abs(signed.value), near, max(abs(signed.low), abs(signed.high)))


def folded(quotient: Estimate) -> Estimate:
    """Return the smaller of a ratio and its inverse, with its interval: at most 1."""
    def turned(number: float) -> float:
        """Return a number, or its inverse if that is smaller."""
        return number if number <= 1 else 1 / number

    ends = sorted((turned(quotient.low), turned(quotient.high)))
    return Estimate(turned(quotient.value), ends[0], 1.0 if quotient.low <= 1 <= quotient.high else ends[1])


def largest(estimates: Sequence[Estimate]) -> Estimate:
    """Return the largest of several figures; its interval holds if all of theirs do together."""
    return _extreme(estimates, max)


def smallest(estimates: Sequence[Estimate]) -> Estimate:
    """Return the smallest of several figures; its interval holds if all of theirs do together."""
    return _extreme(estimates, min)


def _extreme(estimates: Sequence[Estimate], of: Callable[[Sequence[float]], float]) -> Estimate:
    """Return the largest or the smallest value, and of both ends."""
    known = [each for each in estimates if each.value == each.value]
    if not known or len(known) < len(estimates):
        return UNKNOWN
    return Estimate(*(of(ends) for ends in zip(*known, strict=True)))


def places_of(named: Sequence[str], groups: Sequence[str]) -> tuple[int, ...]:
    """Return the places of named groups among all.

    Args:
        named: Names of groups; none for no choice.
        groups: Names of all groups.

    Raises:
        ValueError: If there is no such group.

    Examples:
        >>> places_of(["F", "M"], ["F", "M", "missing"]), places_of([], ["F", "M"])
        ((0, 1), ())
    """
    for name in named:
        if name not in groups:
            raise unknown("group in gap_among", name, groups)
    return tuple(groups.index(name) for name in named)


def gaps(groups: Sequence[Rates], known: Collection[str], confidence: float, named: Sequence[int] = ()
         ) -> Iterator[tuple[str, Estimate]]:
    """Yield the gaps between groups; with more than two, all pairs' intervals hold together.

    Args:
        groups: The groups.
        known: Names of the figures that they have.
        confidence: Probability with which the interval of a gap holds.
        named: Places of the groups that count; none for all of which the rates can be told.
    """
    chosen = [groups[place] for place in named]
    if len(groups) < 2:
        return
    for name, over in gaps_over(known).items():
        told = chosen or _told(groups, over, confidence)
        pairs = list(combinations(range(len(told)), 2))
        z = quantile(confidence, len(pairs) * len(over))
        rates = [[group(metric, z) for group in told] for metric in over]
        yield name, largest([size(difference(of[a], of[b])) for of in rates for a, b in pairs])
    told = chosen or _told(groups, ("positive_rate",), confidence)
    pairs = list(combinations(range(len(told)), 2))
    selected = [group("positive_rate", quantile(confidence, len(pairs))) for group in told]
    yield RATIO, smallest([folded(ratio(selected[a], selected[b])) for a, b in pairs])
    told = chosen or _told(groups, ("accuracy",), confidence)
    yield WORST, smallest([group("accuracy", quantile(confidence, len(told))) for group in told])


def _told(groups: Sequence[Rates], metrics: Sequence[str], confidence: float) -> Sequence[Rates]:
    """Return the groups of which each of some rates can be told; all, if those are fewer than two."""
    z = quantile(confidence)
    told = [group for group in groups if all(group(metric, z).told for metric in metrics)]
    return told if len(told) > 1 else groups


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as plain values by column."""
    return frame.to_dict("records")  # type: ignore[return-value]
