"""PUFFLE: a penalty on the batch's largest gap between groups. Corbucci et al. 2024, arXiv 2407.15224."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, Flat
from fedfair.mechanisms.counting import CountQuery, Predictions
from fedfair.mechanisms.noise import Trust
from fedfair.node.constrained_sums import send_constrained_sum, send_exact_histogram
from fedfair.protocol.fields import NotNegative, Positive
from strategies.server.method import Ask
from strategies.server.population import differences, refuse_weights
from strategies.server.strategy import Strategy

Share = Annotated[float, Field(ge=0, le=0.99)]


class Puffle(Strategy):
    """Mixes the loss with the largest gap between the mean predictions of groups in a batch, and clips each record.

    With p_i = softmax(t z_i), t the `temperature`, and means over the batch's records,

        D = max over k, c of |mean p_c over group k - mean p_c over all other groups|,

    the gradient of record i is (1 - lambda) g_i + lambda b times its part of grad D, clipped to C0. lambda starts at
    `strength` and moves by the gap of a noisy histogram, which is charged together with the gradients: with v <-
    `momentum` v + (`target` - D), lambda <- lambda - `alpha` v, kept from 0 to .99.

    Which gap is the largest, its sign, and how many records a group has follow from the batch without noise, so one
    record changes every other record's gradient: the clip norm does not bound what it changes in their sum, and the
    epsilon is only nominal. Every client is sent them without noise. Trust "central" only; a gap of a group without
    records in the batch does not count.
    """

    class Options(Strategy.Options):
        """See `Puffle`; with `alpha` 0 lambda stays as it is."""

        strength: Share = 0.5
        target: NotNegative = 0.05
        alpha: NotNegative = 0.1
        momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
        temperature: Positive = 1.0

    modes = ("step",)
    needs = "two groups or more, trust central"
    exchange = send_constrained_sum
    nominal = ("every record's gradient has a part that depends on the predictions of the whole batch, so one record "
               "can change the sum of clipped gradients by more than the clip norm that the noise is relative to")
    broadcasts = True
    state = ("strength", "velocity")
    options: Options

    def prepare(self) -> None:
        """Start lambda; raise `ValueError` for weights of records, a single group, or a server that is not trusted."""
        refuse_weights("puffle", self.task)
        differences("puffle", self.population)
        if self.training.trust is not Trust.CENTRAL:
            raise ValueError("puffle needs sums without noise at the server, but trust is "
                             f'{self.training.trust.value!r}: take "central"')
        self.strength, self.velocity = self.options.strength, 0.0

    def rule(self) -> ClipRule:
        """Return C0 / (1 - lambda): nodes clip gradients over 1 - lambda, and `divisor` takes that out."""
        return Flat(self.training.clip_norm / (1 - self.strength))

    def query(self) -> CountQuery:
        """Ask for the histogram of predictions."""
        return Predictions(self.options.temperature)

    def ask_first(self, ask: Ask) -> Mapping[str, Any]:
        """Ask for the batch's exact histogram; the sum of gradients has the prices that follow."""
        exact = ask(send_exact_histogram, {"counts": {"counts": self.like_counts()}})["counts"]["counts"].double()
        ratio = self.training.batch_size * self.strength / (1 - self.strength)
        return {"prices": (ratio * slopes(exact)).flatten().tolist()}

    def divisor(self) -> float:
        """Return b / (1 - lambda), so that steps are along the mean of the mixed gradients."""
        return self.expected_batch() / (1 - self.strength)

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Move lambda by the gap of a noisy histogram `[K, C]`."""
        gap = min(float(gaps(counts.double()).abs().max()), 1.0)
        self.velocity = self.options.momentum * self.velocity + self.options.target - gap
        self.strength = min(max(self.strength - self.options.alpha * self.velocity, 0.0), 0.99)

    def like_counts(self) -> Tensor:
        """Return a histogram of no record."""
        return torch.zeros(len(self.population.names), self.population.classes, dtype=self.task.torch_dtype)


def gaps(histogram: Tensor) -> Tensor:
    """Return by how much the mean predictions of each group exceed those of all others, `[K, C]`.

    Args:
        histogram: Sums of predictions by group, `[K, C]`; a group of less than half a record has no gap.
    """
    sizes = histogram.sum(1, keepdim=True)
    others, other_sizes = histogram.sum(0) - histogram, sizes.sum() - sizes
    there = (sizes > 0.5) & (other_sizes > 0.5)
    return torch.where(there, histogram / sizes.clamp(min=0.5) - others / other_sizes.clamp(min=0.5), 0.0)


def slopes(histogram: Tensor) -> Tensor:
    """Return the slope of the largest gap in each record's predictions, by the record's group, `[K, C]`.

    Args:
        histogram: Sums of predictions by group, `[K, C]`.
    """
    found, sizes = gaps(histogram), histogram.sum(1)
    group, label = divmod(int(found.abs().argmax()), histogram.shape[1])
    made = torch.zeros_like(histogram)
    if found[group, label] != 0:
        made[:, label] = -1 / (sizes.sum() - sizes[group])
        made[group, label] = 1 / sizes[group]
    return made * found[group, label].sign()
