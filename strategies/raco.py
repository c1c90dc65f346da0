"""RaCO-DP: constraints on the rates at which groups are given each class. Yaghini et al. 2026, arXiv 2505.22703.

RaCO-DP with equalised odds: constraints on rates given the label. Yaghini et al. 2026, arXiv 2505.22703.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, Flat
from fedfair.mechanisms.counting import CountQuery, Predictions
from fedfair.node.constrained_sums import send_constrained_sum
from fedfair.protocol.fields import NotNegative, Positive
from strategies.server.population import differences, refuse_weights
from strategies.server.strategy import Strategy


class Raco(Strategy):
    """Descends in the weights and ascends in multipliers of constraints, one for each group k and class c.

    With p_i = softmax(t z_i) the tempered predictions of record i, t the `temperature`, a constraint is on the gap

        Gamma_kc = mean of p_ic over group k - mean of p_ic over all other groups <= gamma,

    and lambda_kc >= 0 its multiplier, 0 at first. In each step, on one Poisson batch at the rate q:

    - Each record's loss is its cross entropy plus N sum_kc lambda_kc (1[a_i = k] / N_k - 1[a_i != k] / (N - N_k)) p_ic;
      its gradient is clipped to C0 as a whole.
    - The histogram H_kc = sum of p_ic over the batch's records of group k gets noise of its own; a record changes it by
      at most 1. It is charged together with the gradients. (The paper has Laplace noise, and composes the two as if
      each had a batch of its own.)
    - Gamma follows from H / q, averaged over steps with the weight `smoothing` of the past, and then
      lambda <- max(0, lambda + `dual_learning_rate` (Gamma - gamma)), which costs nothing.

    The model needs no group to decide. Group sizes are public. The noise of the histogram is `count_noise_multiplier`;
    where it is small beside the batch's groups, the constraint is seen exactly.
    """

    class Options(Strategy.Options):
        """`gamma` is the gap that is allowed; with 0 for `smoothing`, only the latest histogram counts."""

        gamma: NotNegative = 0.05
        dual_learning_rate: Positive = 0.15
        temperature: Positive = 2.0
        smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0

    modes = ("step",)
    needs = "two groups or more"
    exchange = send_constrained_sum
    state: ClassVar[tuple[str, ...]] = ("multipliers", "histogram", "heard")
    options: Options

    def prepare(self) -> None:
        """Start the multipliers at 0; raise `ValueError` for weights of records, or for a single group."""
        refuse_weights("raco", self.task)
        self._differences = differences("raco", self.population)
        shape = (len(self.population.names), self.population.classes)
        self.multipliers = torch.zeros(shape, dtype=torch.float64)
        self.histogram, self.heard = torch.zeros(shape, dtype=torch.float64), 0.0

    def rule(self) -> ClipRule:
        """Return one clip norm for all, of the gradients with their part of the constraints."""
        return Flat(self.training.clip_norm)

    def query(self) -> CountQuery:
        """Ask for the histogram of tempered predictions."""
        return Predictions(self.options.temperature)

    def asked_besides(self) -> dict[str, Any]:
        """Send the prices that the multipliers put on each class for each group."""
        prices = self.population.records * self._differences.T @ self.multipliers
        return {"prices": prices.flatten().tolist()}

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Move the multipliers by a noisy histogram `[K, C]`."""
        past = self.options.smoothing
        self.histogram = past * self.histogram + (1 - past) * counts.double()
        self.heard = past * self.heard + (1 - past)
        rate = expected_batch / self.population.records
        gaps = self._differences @ self.histogram / (self.heard * rate)
        moved = self.multipliers + self.options.dual_learning_rate * (gaps - self.options.gamma)
        self.multipliers = moved.clamp(min=0)

    def like_counts(self) -> Tensor:
        """Return a histogram of no record."""
        return torch.zeros(self.histogram.shape, dtype=self.task.torch_dtype)


class RacoOdds(Raco):
    """Does what `raco` does with a constraint for each group k, label y and class c.

    The constraint is on the gap, with p_i the tempered predictions of record i,

        Gamma_kyc = mean of p_ic over records of group k and label y - the same over all other groups <= gamma.

    Numbers of records by group and label are not public. They follow from the noisy histogram by group, label and
    class, whose rows add up to the numbers of records in the batch: n_ky is their mean over all steps so far. A record
    is in one row, so it still changes the histogram by at most 1, which is charged together with the gradients.

    Means are the rows of the latest histogram (or, with `smoothing`, of an average) over n_ky, and lambda_kyc moves as
    in raco. A record of group k and label y pays lambda_kyc q N / n_ky, less what the other groups' multipliers pay it.
    """

    state = ("multipliers", "histogram", "heard", "sizes", "steps")

    def prepare(self) -> None:
        """Start the multipliers at 0; raise `ValueError` for weights of records, or for a single group."""
        refuse_weights("raco-odds", self.task)
        differences("raco-odds", self.population)
        groups, classes = len(self.population.names), self.population.classes
        self.multipliers = torch.zeros(groups, classes, classes, dtype=torch.float64)
        self.histogram, self.heard = torch.zeros_like(self.multipliers), 0.0
        self.sizes, self.steps = torch.zeros(groups, classes, dtype=torch.float64), 0

    def query(self) -> CountQuery:
        """Ask for the histogram of tempered predictions by group and label."""
        return Predictions(self.options.temperature, by_label=True)

    def asked_besides(self) -> dict[str, Any]:
        """Send the prices that the multipliers put on each class for each group and label."""
        own, others = self._batch_sizes()
        paid = self.multipliers / others[:, :, None]
        prices = self.training.batch_size * (self.multipliers / own[:, :, None] - (paid.sum(0) - paid))
        return {"prices": prices.flatten().tolist()}

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Move the multipliers by a noisy histogram `[K C, C]`."""
        latest, past = counts.double().view(self.histogram.shape), self.options.smoothing
        self.histogram = past * self.histogram + (1 - past) * latest
        self.heard = past * self.heard + (1 - past)
        self.sizes, self.steps = self.sizes + latest.sum(2), self.steps + 1
        own, others = self._batch_sizes()
        sums = self.histogram / self.heard
        gaps = sums / own[:, :, None] - (sums.sum(0) - sums) / others[:, :, None]
        moved = self.multipliers + self.options.dual_learning_rate * (gaps.clamp(-1, 1) - self.options.gamma)
        self.multipliers = moved.clamp(min=0)

    def like_counts(self) -> Tensor:
        """Return a histogram of no record."""
        groups, labels, classes = self.histogram.shape
        return torch.zeros(groups * labels, classes, dtype=self.task.torch_dtype)

    def _batch_sizes(self) -> tuple[Tensor, Tensor]:
        """Return numbers of records of each group and label in a batch, and those of the other groups, at least 1."""
        sizes = self.sizes / max(self.steps, 1)
        return sizes.clamp(min=1), (sizes.sum(0) - sizes).clamp(min=1)
