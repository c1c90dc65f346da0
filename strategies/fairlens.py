"""FairLens: a penalty on what privacy does to two groups. Tran et al. 2021, as in Esipova et al. 2023, Algorithm 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fedfair.mechanisms.clipping import ClipRule, Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node.fairlens_sums import (
    BatchSums,
    Penalty,
    send_batch_sums,
    send_penalty_gradient,
    send_shifted_gradient_sum,
)
from fedfair.protocol.fields import NotNegative
from strategies.server.method import Ask
from strategies.server.strategy import Strategy


class FairLens(Strategy):
    """Shifts every gradient g_i by the gradient r of a penalty on the batch, then clips it.

    With B_a and B_b the batch's records of the two groups, g_B its mean gradient, gbar_B the mean of its clipped
    gradients, and f_k the mean predicted probability of class 1 in group k,

        R1 = |<g_Ba - g_Bb, gbar_B - g_B>|,        R2 = (f_a (1 - f_a) + f_b (1 - f_b)) / 2,
        r  = grad(gamma1 R1 + gamma2 R2),          gbar'_i = (g_i + r) min(1, C0 / |g_i + r|).

    r is the gradient of these terms as they stand, through all four means and the clipping coefficients. In a batch
    without records of one group R1 is 0 and R2 has the other group's term alone; an empty batch has r = 0. Sums are
    divided by the expected batch size, means by the realised one.

    The noise is relative to C0, but r depends on the whole batch: one record changes every gbar'_i, so C0 does not
    bound what it changes in their sum, and the epsilon is only nominal. Every client is sent means of the batch without
    noise. Two groups, two classes, trust "central" and sync "step" only.
    """

    class Options(Strategy.Options):
        """The weights of R1 and R2."""

        gamma1: NotNegative = 1
        gamma2: NotNegative = 1

    modes = ("step",)
    needs = "two groups, two classes, trust central"
    exchange = send_shifted_gradient_sum
    nominal = ("every gradient of a batch is shifted by a vector that depends on the whole batch, so one record can "
               "change the sum of clipped gradients by more than the clip norm that the noise is relative to")
    broadcasts = True
    options: Options

    def prepare(self) -> None:
        """Raise `ValueError` unless there are two groups, two classes, equal weights and a trusted server."""
        if len(self.population.names) != 2:
            raise ValueError(f"fairlens compares two groups, but there are {len(self.population.names)} here "
                             f"({', '.join(self.population.names)}): take a data set with two")
        if self.population.classes != 2:
            raise ValueError(f"fairlens needs a label of two classes, but there are {self.population.classes} here: "
                             "take another label")
        if self.task.record_weight or self.task.class_weights:
            raise ValueError("fairlens has no weights of records or classes: leave record_weight and "
                             "class_weights out")
        if self.training.trust is not Trust.CENTRAL:
            raise ValueError("fairlens needs sums without noise at the server, but trust is "
                             f'{self.training.trust.value!r}: take "central"')

    def rule(self) -> ClipRule:
        """Return one clip norm for all, of the shifted gradients."""
        return Flat(self.training.clip_norm)

    def ask_first(self, ask: Ask) -> Mapping[str, Any]:
        """Ask for the batch's sums, and for the penalty's gradient, by which the gradients are shifted."""
        weights, by_group = self.descent.weights, torch.empty(2, dtype=self.task.torch_dtype)
        sums = ask(send_batch_sums, {"groups": {"sizes": by_group, "probabilities": by_group}, "first": weights,
                                     "second": weights, "clipped": weights})
        penalty = self.penalty(BatchSums(**sums))
        asked: dict[str, Any] = {
            "tensors": {"distortion": penalty.distortion, "difference": penalty.difference},
            "loss-weights": list(penalty.loss_weights), "probability-weights": list(penalty.probability_weights)}
        shift = ask(send_penalty_gradient, {"sums": weights}, **asked)
        return {"tensors": {"shift": shift["sums"]}}

    def penalty(self, batch: BatchSums) -> Penalty:
        """Return what nodes need for their part of r, from the sums over the whole batch.

        grad R1 = +- (grad <g_Ba - g_Bb, v> + grad <d, gbar_B - g_B>) with d = g_Ba - g_Bb and v = gbar_B - g_B held
        constant in turn; grad R2 = sum_k (1 - 2 f_k) / 2 grad f_k.
        """
        sizes, both = batch.groups["sizes"].clamp(min=1), bool(batch.groups["sizes"].all())
        records = float(sizes.sum())
        means = batch.groups["probabilities"] / sizes
        difference = {name: value / sizes[0] - batch.second[name] / sizes[1] for name, value in batch.first.items()}
        distortion = {name: (value - batch.first[name] - batch.second[name]) / records
                      for name, value in batch.clipped.items()}
        product = sum(float(torch.sum(value * distortion[name])) for name, value in difference.items())
        slope = self.options.gamma1 * both * ((product > 0) - (product < 0))
        scaled_distortion = {name: slope * value for name, value in distortion.items()}
        scaled_difference = {name: slope / records * value for name, value in difference.items()}
        return Penalty(scaled_distortion, scaled_difference,
                       tuple((1 / sizes * sizes.new_tensor([1.0, -1.0])).tolist()),
                       tuple((self.options.gamma2 * (0.5 - means) / sizes).tolist()))
