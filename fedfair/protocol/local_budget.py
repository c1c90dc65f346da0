"""A target epsilon for clients that train by themselves: each finds its noise by its own public number of records.

Client and server compute the same noise from the same numbers, so that the ledger charges what was added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fedfair.accounting.events import Release, joint_multiplier
from fedfair.protocol.fields import MOST_STEPS

if TYPE_CHECKING:
    from fedfair.accounting.composition import Accountant


@dataclass(frozen=True, kw_only=True)
class LocalBudget:
    """What the records of each client are kept within over all rounds.

    Args:
        epsilon: Epsilon that is not exceeded.
        delta: Delta at which it holds.
        accountant: How steps are composed.
        rounds: The most rounds, local epochs, in which a client takes part.
        count_ratio: Noise multiplier of a count query in units of the gradients' one.
        count_noise: Noise multiplier of a count query, or None for `count_ratio`.
    """

    epsilon: float
    delta: float
    accountant: Accountant
    rounds: int
    count_ratio: float
    count_noise: float | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for numbers that no budget has."""
        if not (0 < self.epsilon < math.inf and 0 < self.delta < 1 and 1 <= self.rounds <= MOST_STEPS):
            raise ValueError(f"the plan has a budget of epsilon {self.epsilon} at delta {self.delta} for {self.rounds} "
                             "rounds: epsilon must be above 0, delta between 0 and 1, and rounds from 1 to "
                             f"{MOST_STEPS}")

    def counts(self, noise: float) -> float:
        """Return the noise multiplier of the counts beside that of the gradients.

        Args:
            noise: The latter.
        """
        return self.count_ratio * noise if self.count_noise is None else self.count_noise


@lru_cache(maxsize=4096)
def noise_within(budget: LocalBudget, rate: float, steps: int, counting: bool) -> float:
    """Return the smallest noise multiplier that keeps a client's records within a budget.

    Args:
        budget: The budget.
        rate: Sampling rate of the client's batches.
        steps: Number of steps of one local epoch.
        counting: Whether every batch is also counted.

    Raises:
        ValueError: If no noise is enough.
    """
    from fedfair.accounting.composition import calibrate  # with scipy, which other clients do without

    def charged(noise: float) -> dict[Release, int]:
        """Return all that a record is charged for."""
        joint = joint_multiplier(noise, budget.counts(noise) if counting else None)
        return {Release(rate, joint): budget.rounds * steps}

    return calibrate(charged, budget.epsilon, budget.delta, budget.accountant) if steps else 1.0
