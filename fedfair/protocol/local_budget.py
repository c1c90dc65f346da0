"""A target epsilon for clients that train by themselves: each finds its noise by its own public number of records.

Client and server compute the same noise from the same numbers, so that the ledger charges what was added. What a client
does in a round beside: how many steps it takes, and how its weights are held near the first ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

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


class LocalEpoch(NamedTuple):
    """Number of steps, sampling rate and expected batch size of one client's local epoch, or of several in a round.

    Of N records in batches of b: max(1, int(N / b)) steps an epoch at the rate min(1, b / N), and batches of min(b, N).
    A client without records takes no step.
    """

    steps: int
    rate: float
    batch_size: int

    @staticmethod
    def of(records: int, batch_size: int, epochs: int = 1) -> LocalEpoch:
        """Return the local epochs of a client with this public number of records."""
        if records == 0:
            return LocalEpoch(0, 0.0, 0)
        steps = epochs * max(1, records // batch_size)
        return LocalEpoch(steps, min(1.0, batch_size / records), min(batch_size, records))


def proximal_share(learning_rate: float, proximal: float) -> float:
    """Return how far back towards the first weights w_0 the proximal term takes those after a step: 0 nowhere, 1 all.

    It is the term's own step, taken exactly: `w <- v - lr mu (w - w_0)`, solved for w, from the weights v after a step
    along the noisy gradient. So it overshoots for no mu.

    Args:
        learning_rate: Learning rate lr of the step.
        proximal: Weight mu of the term mu / 2 ||w - w_0||^2 (FedProx; Li et al. 2020, Equation 2).

    Examples:
        >>> proximal_share(0.5, 0.0), proximal_share(0.5, 2.0)
        (0.0, 0.5)
    """
    pull = learning_rate * proximal
    return pull / (1 + pull)
