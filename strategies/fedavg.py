"""FedAvg without privacy: the reference for what participant-level privacy costs. McMahan et al. 2017."""

from __future__ import annotations

from fedfair.mechanisms.clipping import ClipRule, Unclipped
from strategies.dp_fedavg import DpFedavg


class Fedavg(DpFedavg):
    """DP-FedAvg without clipping or noise, whatever the settings say; the guarantee is none."""

    needs = "no guarantee: nothing is clipped, and no noise added"

    def rule(self) -> ClipRule:
        """Return the rule that leaves updates as they are."""
        return Unclipped()

    def query(self) -> None:
        """Return None: without a clip norm nothing is counted."""

    def noise_multipliers(self) -> tuple[float, ...]:
        """Return zeros: no noise is added."""
        return (0.0,) * len(self.schedules())
