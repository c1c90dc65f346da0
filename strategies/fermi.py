"""DP-FERMI: a penalty on the dependence of predictions on the group. Lowy et al. 2023, arXiv 2210.08781."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, Flat
from fedfair.mechanisms.counting import CountQuery, Predictions
from fedfair.node.constrained_sums import send_constrained_sum
from fedfair.protocol.fields import NotNegative, Positive
from strategies.server.population import differences, refuse_weights
from strategies.server.strategy import Strategy


class Fermi(Strategy):
    """Descends in the weights of loss + `penalty` times the chi-square dependence between prediction and group.

    With p_i = softmax(z_i) and P_k = N_k / N, the dependence is the largest value over matrices
    W `[K, C]` of the mean over records of

        psi_i(W) = sum_c p_ic (2 W_kc / sqrt(P_k) - sum_j W_jc^2) - 1,         k = a_i,

    and 0 where the groups' mean predictions are equal. In each step, on one Poisson batch of expected size b:

    - Each record's loss is its cross entropy plus `penalty` psi_i; its gradient is clipped to C0 as a whole.
    - The histogram H_kc = sum of p_ic over the batch's records of group k gets noise of its own; a record changes it by
      at most 1. It is charged together with the gradients.
    - The gradient of the mean psi in W follows from H / b:
      W <- W + `dual_learning_rate` (2 H_kc / (b sqrt(P_k)) - 2 W_kc sum_j H_jc / b), kept within the norm `bound`.

    The paper adds noise to the gradient in W itself, which is linear in H; the sensitivity of H is 1 whatever W is. W
    starts at sqrt(P_k), where predictions that do not depend on the group leave it; `penalty` 0 is dpsgd, with a
    histogram that is not used. The model needs no group to decide. Group sizes are public.
    """

    class Options(Strategy.Options):
        """See `Fermi`."""

        penalty: NotNegative = 1.0
        dual_learning_rate: Positive = 0.2
        bound: Positive = 10.0

    modes = ("step",)
    needs = "two groups or more"
    exchange = send_constrained_sum
    state = ("dual",)
    options: Options

    def prepare(self) -> None:
        """Start W at independence; raise `ValueError` for weights of records, or for a single group."""
        refuse_weights("fermi", self.task)
        differences("fermi", self.population)
        shares = torch.tensor(self.population.by_group, dtype=torch.float64)[:, None] / self.population.records
        self._root, self._inverse = shares.sqrt(), torch.where(shares > 0, shares.rsqrt(), 0.0)
        self.dual = self._root.repeat(1, self.population.classes)

    def rule(self) -> ClipRule:
        """Return one clip norm for all, of the gradients with their part of the penalty."""
        return Flat(self.training.clip_norm)

    def query(self) -> CountQuery:
        """Ask for the histogram of predictions."""
        return Predictions(1.0)

    def asked_besides(self) -> dict[str, Any]:
        """Send the prices that the penalty puts on each class for each group."""
        prices = 2 * self._inverse * self.dual - self.dual.square().sum(0)
        return {"prices": (self.options.penalty * prices).flatten().tolist()}

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Move W by a noisy histogram `[K, C]`."""
        means = counts.double() / expected_batch
        slope = 2 * self._inverse * means - 2 * self.dual * means.sum(0)
        moved = self.dual + self.options.dual_learning_rate * slope
        self.dual = moved * (self.options.bound / moved.norm()).clamp(max=1)

    def like_counts(self) -> Tensor:
        """Return a histogram of no record."""
        return torch.zeros(self.dual.shape, dtype=self.task.torch_dtype)
