"""SGD without privacy: the reference for what privacy costs."""

from __future__ import annotations

from fedfair.mechanisms.clipping import ClipRule, Unclipped
from strategies.server.calibration import NoisePlan
from strategies.server.strategy import Strategy


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
