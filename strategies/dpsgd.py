"""DP-SGD: Abadi et al. 2016, Algorithm 1.

The same with importance sampling of groups, DP-IS-SGD: Kulynych et al. 2022. SGD without privacy: the reference for
what privacy costs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fedfair.accounting import spent_multipliers
from fedfair.mechanisms.clipping import ClipRule, Flat, PerGroup, Unclipped
from strategies.server.calibration import NoisePlan
from strategies.server.strategy import Strategy

_MOST_NOISE = 1e6  # of the setting noise_multiplier


class Dpsgd(Strategy):
    """Clips every gradient to one norm, `c_i = min(1, C / n_i)`; the noise is relative to it.

    With `noise_scale` = "absolute" the deviation of the noise is the setting `noise_multiplier` itself, whatever C is,
    as Bagdasaryan and Shmatikov print it on their poster (Algorithm 1: N(0, sigma^2 I)). A record is then protected by
    a noise multiplier of sigma / C, which is what the ledger charges.

    With `clip_norm` as a table a gradient of group k is clipped to C_k, and the noise is relative to the largest. A
    record of group k adds at most C_k, so that the group is charged a noise multiplier of sigma max_j C_j / C_k. That
    is `dpsgd-f` with clip norms that are fixed in advance, and so a guarantee.
    """

    class Options(Strategy.Options):
        """See `Dpsgd`."""

        noise_scale: Literal["clip-norm", "absolute"] = "clip-norm"

    tables = Strategy.tables | {"clip_norm"}
    samplings = Strategy.samplings | {"balls-in-bins"}
    options: Options

    def prepare(self) -> None:
        """Raise `ValueError` for absolute noise beside a target epsilon, or of too many clip norms."""
        if self.options.noise_scale == "clip-norm":
            return
        if self.training.target_epsilon is not None:
            raise ValueError('noise_scale is "absolute", but target_epsilon sets the noise in multiples of the clip '
                             'norm: give noise_multiplier, or take noise_scale "clip-norm"')
        if self._relative(self.training.noise_multiplier) > _MOST_NOISE:
            raise ValueError(f'noise_scale is "absolute", and noise_multiplier {self.training.noise_multiplier:g} is '
                             f"more than {_MOST_NOISE:g} times clip_norm {self.training.clip_norm:g}: take less noise, "
                             "or a larger clip norm")

    def rule(self) -> ClipRule:
        """Return one clip norm for all, or one for each group."""
        if "clip_norm" in self.training.tables:
            return PerGroup(self.training.by_group("clip_norm", self.population.names))
        return Flat(self.training.clip_norm)

    def noise_plan(self) -> NoisePlan:
        """Return one multiplier for all: as set or calibrated, or the absolute noise in multiples of the clip norm.

        In step mode groups with clip norms of their own are charged the noise in units of these. Raises `ValueError`
        for clip norms that are too far apart.
        """
        plan = super().noise_plan()
        if self.options.noise_scale == "absolute":
            plan = replace(plan, multipliers=tuple(map(self._relative, plan.multipliers)),
                           of_sum=self._relative(plan.of_sum))
        if "clip_norm" not in self.training.tables:
            return plan
        bounds = self.rule().group_sensitivities(len(self.population.names))
        own = spent_multipliers(max(plan.multipliers), bounds)
        if max(own) > _MOST_NOISE:
            raise ValueError(f"clip_norm is {min(bounds):g} for one group and {max(bounds):g} for another, so that the "
                             f"noise is {max(own):g} times the smaller one, more than {_MOST_NOISE:g}: take clip norms "
                             "that are less far apart")
        return plan if self.sync == "epoch" else replace(plan, by_group=own)

    def _relative(self, deviation: float) -> float:
        """Return a deviation of the noise in multiples of the clip norm, the largest of several."""
        return deviation / self.training.clip_norm


class DpsgdIs(Dpsgd):
    """Samples each group at its own rate, so that a batch is expected to hold as many records of every group.

    A record of group k of K is in the batch with probability q_k = b / (K N_k), independently of the others; the
    batch is b records on average. The clipped gradients are added up without weights and divided by b: the step
    estimates the gradient of the mean of the groups' mean losses. A group of fewer than b / K records is always in the
    batch as a whole, and weighs N_k / b.

    Each group is charged its own rate. Records of the smallest group pay most, and the guarantee is theirs. Group sizes
    are public.
    """

    modes = ("step",)

    def rates(self) -> tuple[float, ...]:
        """Return b / (K N_k) for group k, at most 1."""
        share = self.training.batch_size / len(self.population.names)
        return tuple(min(1.0, share / max(size, 1)) for size in self.population.by_group)


class Sgd(Strategy):
    """SGD without clipping or noise, whatever the settings say; the guarantee is none."""

    needs = "no guarantee: nothing is clipped, and no noise added"
    samplings = Strategy.samplings | {"balls-in-bins"}

    def rule(self) -> ClipRule:
        """Return the rule `c_i = 1`."""
        return Unclipped()

    def noise_plan(self) -> NoisePlan:
        """Return zeros: no noise is added."""
        return NoisePlan((0.0,) * len(self.schedules()))
