"""An exponential moving average of a run's weights: post-processing, which costs no privacy. De et al. 2022."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class WeightAverage:
    """The average of the weights after each round, the latest of which count most.

    With t the number of rounds so far, `average <- d average + (1 - d) weights` for d = min(decay, (1 + t) / (10 + t)),
    which is small at first, so that early weights are soon forgotten. The first average is the first weights.

    Args:
        decay: Largest d, from 0 to below 1; 0 for the latest weights alone.

    Attributes:
        weights: The average by name; empty before the first round.
        rounds: Number of rounds so far.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {}
        self.rounds = 0

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Add the weights after a round, which may be changed in place later.

        Args:
            weights: Weights by name.
        """
        self.rounds += 1
        if self.rounds == 1 or not self.decay:
            self.weights = {name: value.clone() for name, value in weights.items()}
            return
        kept = min(self.decay, (1 + self.rounds) / (10 + self.rounds))
        self.weights = {name: kept * self.weights[name] + (1 - kept) * value for name, value in weights.items()}
