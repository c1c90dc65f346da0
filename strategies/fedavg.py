"""FedAvg without privacy: the reference for what participant-level privacy costs. McMahan et al. 2017."""

from __future__ import annotations

from fedfair.mechanisms.clipping import ClipRule, Unclipped
from strategies.dp_fedavg import DpFedavg


class Fedavg(DpFedavg):
    """DP-FedAvg with no clipping and no noise, whatever the settings say; the guarantee is none."""

    def rule(self) -> ClipRule:
        """Updates as they are."""
        return Unclipped()

    def query(self) -> None:
        """No clip norm, nothing to count."""

    def noise_multipliers(self) -> tuple[float, ...]:
        """None."""
        return (0.0,) * len(self.schedules())
