"""What one step of a method releases about the records of each group."""

from __future__ import annotations

from dataclasses import dataclass

from fedfair.accounting.release import Release, joint_multiplier


@dataclass(frozen=True)
class Event:
    """One Poisson-sampled step: a noisy gradient sum and, on the same batch, possibly noisy counts.

    By group: `rates`, the sampling rates; `multipliers`, the gradient noise in units of the most that any record can
    add, fixed in advance; `spent_multipliers`, the same in units of the most that a record of the group can add under
    the bounds of this step, which may depend on earlier outputs. `count_multiplier` is the noise of the counts in units
    of their sensitivity, or None. `client` is the only one whose records are touched, or None for all.
    """

    rates: tuple[float, ...]
    multipliers: tuple[float, ...]
    spent_multipliers: tuple[float, ...]
    count_multiplier: float | None = None
    client: int | None = None

    def guaranteed(self, group: int) -> Release:
        """What a record of `group` is charged whatever the bounds: one joint Gaussian on one Poisson sample."""
        return Release(self.rates[group], joint_multiplier(self.multipliers[group], self.count_multiplier))

    def spent(self, group: int) -> Release:
        """What a record of `group` is charged under the bounds of this step."""
        return Release(self.rates[group], joint_multiplier(self.spent_multipliers[group], self.count_multiplier))

    def separate(self, group: int) -> tuple[Release, ...]:
        """Gradient and counts as two separately sampled events, as the papers compose them; for comparison."""
        gradient = Release(self.rates[group], self.multipliers[group])
        counts = () if self.count_multiplier is None else (Release(self.rates[group], self.count_multiplier),)
        return (gradient, *counts)
