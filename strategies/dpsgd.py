"""DP-SGD: Abadi et al. 2016, Algorithm 1."""

from __future__ import annotations

from fedfair.mechanisms.clipping import ClipRule, Flat
from strategies.server.strategy import Strategy


class Dpsgd(Strategy):
    """Clips every gradient to one norm, `c_i = min(1, C / n_i)`; the noise is relative to it."""

    def rule(self) -> ClipRule:
        """Return one clip norm for all."""
        return Flat(self.training.clip_norm)
