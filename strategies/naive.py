"""The naive baseline: groups are reweighted by their noisy sizes in the batch. Xu et al. 2021, Algorithm 3."""

from __future__ import annotations

from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, Reweighted
from fedfair.mechanisms.counting import CountQuery, GroupSizes
from strategies.server.strategy import Strategy


class Naive(Strategy):
    """Clips every gradient to C0 and weights it so that each group has about the same share of the sum.

    Before the gradients of each batch of expected size b, with b_k the noisy number of records of group k of K,

        theta_k = (b / K) / max(b_k, 1),        c_i = theta_{a_i} min(1, C0 / n_i),

    and the noise is relative to C0 times the largest theta_k of all groups, at most b / K. Where local epochs are
    averaged, theta follows the counts of the round before.
    """

    counts_first = True
    state = ("weights",)

    def prepare(self) -> None:
        """Start every group at the weight 1."""
        self.weights = (1.0,) * len(self.population.names)

    def query(self) -> CountQuery:
        """Count the records of each group in the batch."""
        return GroupSizes()

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Set new weights from noisy counts `[K]`."""
        even = expected_batch / len(counts)
        self.weights = tuple((even / counts.double().clamp(min=1)).tolist())

    def rule(self) -> ClipRule:
        """Return one clip norm, and the groups' weights."""
        return Reweighted((self.training.clip_norm,) * len(self.weights), self.weights)
