"""What one step of a method releases about the records of each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedfair.accounting.release import Release, joint_multiplier, refuse_impossible


@dataclass(frozen=True)
class Event:
    """One Poisson-sampled step: a noisy gradient sum and, on the same batch, possibly noisy counts.

    By group: `rates`, the sampling rates; `multipliers`, the gradient noise in units of the most that any record can
    add, fixed in advance; `spent_multipliers`, the same in units of the most that a record of the group can add under
    the bounds of this step, which may depend on earlier outputs; `certain_multipliers`, the least that those were
    certain to be before the step began, or None if they were known then. `count_multiplier` is the noise of the counts
    in units of their sensitivity, or None. `client` is the only one whose records are touched, or None for all.

    Counts of the same batch that choose the step's bounds say something of who is in the batch: given them, a record
    is in it with another probability than its sampling rate. So what then was spent is no divergence of the step, and
    must not be added up by an odometer or a filter; the least noise is: whatever the counts are, the gradient sum is a
    noisier version of one with that, and together they are one Gaussian on one Poisson sample.

    All multipliers are the planned ones; `noise_present` is the part of their standard deviation that was really in the
    sums, below 1 if clients dropped out with their shares of it (see `noise_present`). Raises what `refuse_impossible`
    does.
    """

    rates: tuple[float, ...]
    multipliers: tuple[float, ...]
    spent_multipliers: tuple[float, ...]
    count_multiplier: float | None = None
    client: int | None = None
    noise_present: float = 1.0
    certain_multipliers: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for rate, *multipliers in zip(self.rates, self.multipliers, self.spent_multipliers,
                                      self.certain_multipliers or self.multipliers, strict=True):
            for multiplier in (*multipliers, self.count_multiplier or 0.0):
                refuse_impossible(Release(rate, multiplier))

    def guaranteed(self, group: int, noise: float | None = None) -> Release:
        """What a record of `group` is charged whatever the bounds: one joint Gaussian on one Poisson sample.

        `noise` replaces `noise_present`, for somebody who sees more or less of it.
        """
        return self._release(group, self.multipliers, noise)

    def spent(self, group: int, noise: float | None = None) -> Release:
        """What a record of `group` is charged under the bounds of this step."""
        return self._release(group, self.spent_multipliers, noise)

    def certain(self, group: int) -> Release:
        """What a record of `group` is charged by what was certain before this step, given the steps before."""
        certain = self.spent_multipliers if self.certain_multipliers is None else self.certain_multipliers
        return self._release(group, certain, None)

    def in_advance(self) -> Event:
        """The same event, of which every group is charged what was certain whatever the bounds."""
        return replace(self, spent_multipliers=self.multipliers, certain_multipliers=None)

    def separate(self, group: int) -> tuple[Release, ...]:
        """Gradient and counts as two separately sampled events, as the papers compose them; for comparison."""
        gradient = Release(self.rates[group], self.multipliers[group] * self.noise_present)
        if self.count_multiplier is None:
            return (gradient,)
        return gradient, Release(self.rates[group], self.count_multiplier * self.noise_present)

    def _release(self, group: int, multipliers: tuple[float, ...], noise: float | None) -> Release:
        """Gradient and counts together."""
        seen = self.noise_present if noise is None else noise
        joint = joint_multiplier(multipliers[group], self.count_multiplier)
        return Release(self.rates[group], joint * seen if seen > 0 else 0.0)


def spent_multipliers(noise: float, bounds: Sequence[float]) -> tuple[float, ...]:
    """By group: noise in units of the largest of `bounds`, what a record of each group can add, in units of its own.

    A noise of 0 stays 0, whatever the bounds, infinite ones included. Raises `ValueError` for noise around a sum that
    nothing bounds.
    """
    largest = max(bounds)
    if noise and math.isinf(largest):
        raise ValueError(f"the bounds are {tuple(bounds)}: noise hides nothing in a sum without bounds, take finite "
                         "ones")
    return tuple(noise * largest / bound if noise else 0.0 for bound in bounds)


def noise_present(clients: int, missing: int) -> float:
    """The part of distributed noise, in standard deviations, that is left when `missing` of n equal shares are not in
    the sum: sqrt((n - d) / n). Raises `ValueError` for more missing than there are.
    """
    if not 0 <= missing <= clients:
        raise ValueError(f"{missing} of {clients} clients are missing: take a number from 0 to {clients}")
    return math.sqrt((clients - missing) / clients)
