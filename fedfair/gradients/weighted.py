"""The gradients of weighted losses, from a probe of the unweighted ones: `w_i g_i`."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedfair.gradients.layer_probe import Probe
from fedfair.gradients.layers import Gradients


class WeightedProbe:
    """The gradients `w_i g_i` of a batch: what a clip rule then bounds is what a record adds, weight included.

    Args:
        probe: Probe of the `g_i`.
        weights: Weight of each example, `[B]`, from 0.
    """

    def __init__(self, probe: Probe, weights: Tensor) -> None:
        self._probe, self._weights = probe, weights.to(probe.norms)
        self.norms, self.losses = self._weights * probe.norms, self._weights.to(probe.losses) * probe.losses

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `fedfair.gradients.layer_probe.Probe`."""
        return self._weights * self._probe.dot(direction)

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `fedfair.gradients.layer_probe.Probe`."""
        return self._probe.weighted_sum(coefficients * self._weights)
