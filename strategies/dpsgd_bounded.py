"""DP-SGD with bounded adaptive clipping: Zhao et al. 2025, arXiv 2506.01396."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, Flat
from fedfair.mechanisms.counting import Above, CountQuery
from fedfair.protocol.fields import Positive
from strategies.server.strategy import Strategy


class DpsgdBounded(Strategy):
    """Moves one clip norm C to a quantile of the gradients' norms, but never below a lower bound.

    C starts at C0 (`clip_norm`). With m the noisy number of gradients above C in a batch of expected size b, counted
    together with the gradients that C clipped, each step ends with

        C <- max(C_lower, C exp(eta (m / b - (1 - quantile)))),        C_lower = `min_bound` C0.

    Without a bound C follows the norms of the majority, which shrink as it is fitted, and the gradients of all others
    are cut ever shorter. So that no count, however noisy, can end a run, C also stays below 10^6 C0.
    """

    class Options(Strategy.Options):
        """`quantile` is the share of gradients that C leaves alone, `eta` how fast C moves."""

        quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
        eta: Positive = 0.2
        min_bound: Annotated[float, Field(gt=0, le=1)] = 0.1

    state = ("clip_norm",)
    options: Options

    def prepare(self) -> None:
        """Start C at C0."""
        self.clip_norm = self.training.clip_norm

    def query(self) -> CountQuery:
        """Count the gradients above C."""
        return Above(self.clip_norm)

    def rule(self) -> ClipRule:
        """Return one clip norm for all."""
        return Flat(self.clip_norm)

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Set the next C from a noisy count `[1]`."""
        surplus = float(counts) / expected_batch - (1 - self.options.quantile)
        moved = math.exp(min(math.log(self.clip_norm) + self.options.eta * surplus, 700.0))
        first = self.training.clip_norm
        self.clip_norm = max(min(moved, 1e6 * first), self.options.min_bound * first)
