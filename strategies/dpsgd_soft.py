"""DP-SGD with smooth clipping: SoftAdaClip, arXiv 2510.01447."""

from __future__ import annotations

from fedfair.mechanisms.clipping import ClipRule, Soft
from strategies.server.strategy import Strategy


class DpsgdSoft(Strategy):
    """Scales every gradient by `c_i = C tanh(n_i / C) / n_i`, so that no gradient is cut; the noise is relative to C.

    Gradients much shorter than C keep their length, and a longer gradient always stays longer than a shorter one.
    """

    def rule(self) -> ClipRule:
        """Return one clip norm for all."""
        return Soft(self.training.clip_norm)
