"""DP-SGD: Abadi et al. 2016, Algorithm 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fedfair.mechanisms.clipping import ClipRule, Flat
from strategies.server.strategy import NoisePlan, Strategy

_MOST_NOISE = 1e6  # of the setting noise_multiplier


class Dpsgd(Strategy):
    """Clips every gradient to one norm, `c_i = min(1, C / n_i)`; the noise is relative to it.

    With `noise_scale` = "absolute" the deviation of the noise is the setting `noise_multiplier` itself, whatever C is,
    as Bagdasaryan and Shmatikov print it on their poster (Algorithm 1: N(0, sigma^2 I)). A record is then protected by
    a noise multiplier of sigma / C, which is what the ledger charges.
    """

    class Options(Strategy.Options):
        """See `Dpsgd`."""

        noise_scale: Literal["clip-norm", "absolute"] = "clip-norm"

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
        """Return one clip norm for all."""
        return Flat(self.training.clip_norm)

    def noise_plan(self) -> NoisePlan:
        """Return one multiplier for all: as set or calibrated, or the absolute noise in multiples of the clip norm."""
        plan = super().noise_plan()
        if self.options.noise_scale == "clip-norm":
            return plan
        return replace(plan, multipliers=tuple(map(self._relative, plan.multipliers)),
                       of_sum=self._relative(plan.of_sum))

    def _relative(self, deviation: float) -> float:
        """Return a deviation of the noise in multiples of the clip norm."""
        return deviation / self.training.clip_norm
