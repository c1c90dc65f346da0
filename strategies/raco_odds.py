"""RaCO-DP with equalised odds: constraints on rates given the label. Yaghini et al. 2026, arXiv 2505.22703."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedfair.mechanisms.counting import CountQuery, Predictions
from strategies.raco import Raco
from strategies.server.constraints import differences, refuse_weights


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
