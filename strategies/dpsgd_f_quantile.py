"""DPSGD-F with clip norms that follow a quantile of each group's gradient norms. After Andrew et al. 2021."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, PerGroup
from fedfair.mechanisms.counting import AboveAndBelow, CountQuery
from fedfair.protocol.bounds import GroupBound, Positive
from strategies.server.strategy import Strategy


class DpsgdFQuantile(Strategy):
    """Moves every group's clip norm towards one quantile of the norms of the group's gradients.

    Symbols, for group k of K:

        C0      base clip norm (`clip_norm`)             b       expected batch size
        m_k     noisy number of gradients above C_k      o_k     noisy number of the others
        gamma   the `quantile`                           eta     how fast the clip norms move

    All C_k start at C0. The counts come with the gradients that C_k clipped, and each step ends with

        C_k <- C_k exp(-eta ((1 - gamma) o_k - gamma m_k) / (b / K)),

    kept between `min_bound` and `max_bound` times C0: the geometric update of Andrew et al. 2021, at rest where a share
    gamma of the group's gradients is not clipped. They divide by the noisy number of records counted, which can be any
    number for a small group. This method divides by the public size of a group in an even batch; small groups then
    move slowly. The noise is relative to the largest C_k of all groups.
    """

    class Options(Strategy.Options):
        """See `DpsgdFQuantile`."""

        quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
        eta: Positive = 0.1
        min_bound: Annotated[float, Field(gt=0, le=1)] = 0.1
        max_bound: GroupBound = 4

    state = ("clip_norms",)
    options: Options

    def prepare(self) -> None:
        """Start every group at the base clip norm."""
        self.clip_norms = (self.training.clip_norm,) * len(self.population.names)

    def query(self) -> CountQuery:
        """Count the gradients of each group above its clip norm, and the others."""
        return AboveAndBelow(self.clip_norms)

    def rule(self) -> ClipRule:
        """Return the groups' clip norms."""
        return PerGroup(self.clip_norms)

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Set new clip norms from noisy counts `[2, K]`."""
        above, below = counts.double()
        surplus = ((1 - self.options.quantile) * below - self.options.quantile * above) / (expected_batch / len(above))
        moved = above.new_tensor(self.clip_norms) * (-self.options.eta * surplus).exp()
        least, most = (self.training.clip_norm * bound for bound in (self.options.min_bound, self.options.max_bound))
        self.clip_norms = tuple(moved.clamp(least, most).tolist())
