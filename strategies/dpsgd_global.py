"""DPSGD-Global: gradients are scaled alike instead of clipped. Bu et al. 2021; Esipova et al. 2023, Algorithm 2."""

from __future__ import annotations

from fedfair.mechanisms.clipping import ClipRule, Global
from fedfair.protocol.bounds import Positive
from strategies.server.strategy import Strategy


class DpsgdGlobal(Strategy):
    """Scales gradients of norm at most Z by `c_i = C0 / Z`, so that they keep their direction; drops larger ones."""

    class Options(Strategy.Options):
        """`bound` is Z, fixed, at least the clip norm."""

        bound: Positive = 50

    options: Options

    def prepare(self) -> None:
        """Raise `ValueError` for a bound below the clip norm, which would scale gradients up and drop the rest."""
        if self.options.bound < self.training.clip_norm:
            raise ValueError(f"bound is {self.options.bound}, below clip_norm {self.training.clip_norm}: it is the "
                             "norm up to which gradients are kept, so take a larger one")

    def rule(self) -> ClipRule:
        """Return the rule that scales up to Z and drops above."""
        return Global(self.training.clip_norm, self.options.bound)
