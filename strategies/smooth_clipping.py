"""DP-SGD with clip rules that scale every gradient and cut none: AUTO-S (Bu et al. 2022), SoftAdaClip (2510.01447)."""

from __future__ import annotations

from fedfair.mechanisms.clipping import Automatic, ClipRule, Soft
from fedfair.protocol.fields import Positive
from strategies.server.strategy import Strategy


class DpsgdAuto(Strategy):
    """Normalises every gradient, `c_i = C / (n_i + gamma)`; the noise is relative to C.

    C only scales the learning rate, since sums and noise are both in proportion to it: there is no clip norm to tune.
    With a small gamma all records add about the same, those whose gradients are short too. Bu et al. 2022, AUTO-S.
    """

    class Options(Strategy.Options):
        """`gamma` is what is added to every norm; the paper takes 0.01."""

        gamma: Positive = 0.01

    options: Options

    def rule(self) -> ClipRule:
        """Return one norm for all."""
        return Automatic(self.training.clip_norm, self.options.gamma)


class DpsgdSoft(Strategy):
    """Scales every gradient by `c_i = C tanh(n_i / C) / n_i`, so that no gradient is cut; the noise is relative to C.

    Gradients much shorter than C keep their length, and a longer gradient always stays longer than a shorter one.
    SoftAdaClip, arXiv 2510.01447.
    """

    def rule(self) -> ClipRule:
        """Return one clip norm for all."""
        return Soft(self.training.clip_norm)
