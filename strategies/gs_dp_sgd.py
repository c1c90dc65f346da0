"""GS-DP-SGD: each group trains by itself, and the models are averaged. Yang et al. 2024, Algorithm 2.

FairDP: groups train by themselves under a small last layer. Tran K. et al. 2023, as run by Yang et al. 2024.
"""

from __future__ import annotations

import math
from operator import mul
from typing import Annotated

from pydantic import Field

from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.clipping import ClipRule, Flat, PerGroup, Reweighted
from fedfair.protocol.fields import Positive
from strategies.server.calibration import NoisePlan, own_noise
from strategies.server.strategy import Strategy


class GsDpSgd(Strategy):
    """Trains each group by itself and averages the models, every group with the same weight.

    In epoch mode (the authors' code, and the default) each group's client trains one epoch; in step mode each group
    takes one step from the common weights.

    A step of group k samples its N_k records with rate b / N_k, clips to C_k, adds noise sigma_k C_k and divides by b
    (by N_k, with rate 1, if the group is smaller). With a target epsilon every sigma_k is calibrated by itself, so that
    each group meets it. "Distinct privacy parameters can be set for each group" (section 3.1): `clip_norm`,
    `noise_multiplier` and `target_epsilon` may be tables by group. The mean of the groups' SGD steps is one step along
    a weighted gradient sum, so step mode works for any partition; each group is charged for its own noise alone.
    """

    default_sync = "epoch"
    tables = Strategy.tables | {"clip_norm", "noise_multiplier", "target_epsilon"}
    needs = "each group on one client, with sync epoch"

    def prepare(self) -> None:
        """Raise `ValueError` if groups cannot train by themselves under these settings."""
        if self.sync == "epoch":
            groups_held = [sum(map(bool, sizes)) for sizes in self.population.sizes]
            if groups_held != [1] * len(self.population.names):
                raise ValueError("gs-dp-sgd trains each group on a client of its own, but here the groups are spread "
                                 'over clients: take partition = "group" without clients, or sync = "step"')
        elif self.training.optimizer != "sgd" or self.training.momentum:
            raise ValueError('gs-dp-sgd with sync = "step" averages steps of plain SGD, but optimizer is '
                             f"{self.training.optimizer!r} with momentum {self.training.momentum:g}: take sgd and 0, "
                             'or sync = "epoch"')

    def rates(self) -> tuple[float, ...]:
        """Return b / N_k for group k, at most 1."""
        return tuple(min(1.0, self.training.batch_size / size) for size in self.population.by_group)

    def rule(self) -> ClipRule:
        """Return the clip norms; in step mode a group smaller than b weighs b / N_k, so that N_k divides its sum."""
        clip_norms = self.training.by_group("clip_norm", self.population.names)
        if self.sync == "step":
            return Reweighted(clip_norms, self._group_weights())
        return PerGroup(clip_norms) if "clip_norm" in self.training.tables else Flat(self.training.clip_norm)

    def divisor(self) -> float:
        """Return K b: the step is the mean over K groups of sums divided by b."""
        return len(self.population.names) * self.training.batch_size

    def client_weights(self) -> tuple[float, ...]:
        """Return equal shares."""
        return (1 / len(self.population.sizes),) * len(self.population.sizes)

    def noise_plan(self) -> NoisePlan:
        """Return each group's own noise, which it is charged, although the others' protects it too in the average.

        The noise of a local epoch is in units of the largest C_k. A step carries the noise of all groups together, in
        units of the largest weight times C_k.
        """
        trained = self._trained_groups()
        own = tuple(own_noise(schedule, self.training.of_group(group), self.beside)
                    for schedule, group in zip(self.schedules(), trained, strict=True))
        shares = [clip / self.training.clip_norm for clip in self.training.by_group("clip_norm", trained)]
        if self.sync == "epoch":
            return NoisePlan(tuple(map(mul, own, shares)), by_group=own)
        bounds = [*map(mul, self._group_weights(), shares)]
        return NoisePlan(own, math.hypot(*map(mul, bounds, own)) / max(bounds), by_group=own)

    @property
    def rounds_per_epoch(self) -> float:
        """Rounds in which every record is met once on average: in step mode each samples b records of every group."""
        if self.sync == "epoch":
            return super().rounds_per_epoch
        sampled = sum(min(self.training.batch_size, size) for size in self.population.by_group)
        return self.population.records / sampled

    def _trained_groups(self) -> tuple[str, ...]:
        """Return the names of the groups that train by themselves: of all, or of those of the clients in epoch mode."""
        names = self.population.names
        if self.sync == "step":
            return names
        return tuple(names[max(range(len(names)), key=sizes.__getitem__)] for sizes in self.population.sizes)

    def _group_weights(self) -> tuple[float, ...]:
        """Return b / min(b, N_k) for group k."""
        return tuple(max(1.0, self.training.batch_size / size) for size in self.population.by_group)


class FairDp(GsDpSgd):
    """GS-DP-SGD that starts every round from `W min(1, M / |W|)`, where W are the weights of the last layer.

    W is the last of the model's parameters that has two or more dimensions, without its bias, and |W| its Euclidean
    (Frobenius) norm; M is `max_norm`, 0.1 to 1 in the papers. Scaling reads no record, so it costs no privacy; the
    model that the last round returns is not scaled again. In the last tenth of the rounds (`late_share`) the optimiser
    is plain SGD with `late_learning_rate`, as in the authors' runs; a `late_share` of 0 keeps the run's own.
    """

    class Options(Strategy.Options):
        """See `FairDp`."""

        max_norm: Positive = 1
        late_share: Annotated[float, Field(ge=0, le=1)] = 0.1
        late_learning_rate: Positive = 0.005

    options: Options

    def prepare(self) -> None:
        """Check what GS-DP-SGD checks, and set the optimiser of the last rounds."""
        super().prepare()
        late = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": self.options.late_learning_rate}
        self._late = self.training.model_copy(update=late)

    def start(self, weights: Gradients) -> Gradients:
        """Scale the last layer; the last rounds are plain SGD."""
        if self.step >= self.rounds - math.ceil(round(self.options.late_share * self.rounds, 9)):
            self.training = self._late
        return with_small_last_layer(weights, self.options.max_norm)


def with_small_last_layer(weights: Gradients, max_norm: float) -> Gradients:
    """Return the weights, with the last matrix among them scaled down to `max_norm` if its norm is larger."""
    last = [name for name, value in weights.items() if value.dim() > 1][-1]
    return {**weights, last: weights[last] * (max_norm / weights[last].norm()).clamp(max=1)}
