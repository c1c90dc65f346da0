"""DPSGD-Global: gradients are scaled alike instead of clipped. Bu et al. 2021; Esipova et al. 2023, Algorithm 2.

DPSGD-Global-Adapt: scaling with an adaptive bound. Esipova et al. 2023, Algorithm 2 (in red).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, Global, GlobalAdapt
from fedfair.mechanisms.counting import Above, CountQuery
from fedfair.protocol.fields import Positive
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


class DpsgdGlobalAdapt(Strategy):
    """Scales gradients up to Z by C0 / Z, clips larger ones to C0, and adapts Z to how many are large.

    With b_t the noisy number of gradients of norm above tau Z in a batch of expected size b, counted together with the
    gradients, each step ends with Z <- Z exp(-eta + b_t / b). Z never falls below `min_bound` (Zhao et al. 2025); with
    "clip-norm" that is C0, since the listing takes a bound Z >= C0 but lets it shrink below, where gradients are scaled
    up. So that no count, however noisy, can end a run, it also stays above C0 / 10^6 and below 10^6 times its first
    value.
    """

    class Options(Strategy.Options):
        """`bound` is the first Z, `tau` where a gradient counts as large, `eta` how fast Z shrinks."""

        bound: Positive = 50
        tau: Positive = 1
        eta: Positive = 0.1
        min_bound: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["clip-norm"] = 0.0

    state = ("bound",)
    options: Options

    def prepare(self) -> None:
        """Start Z at the option `bound`; raise `ValueError` for one below the clip norm where Z is never to be."""
        if self.options.min_bound == "clip-norm" and self.options.bound < self.training.clip_norm:
            raise ValueError(f'min_bound is "clip-norm", but bound is {self.options.bound:g}, below clip_norm '
                             f"{self.training.clip_norm:g}: take a larger bound, or a number as min_bound")
        self.bound = self.options.bound

    def query(self) -> CountQuery:
        """Count the gradients above tau Z."""
        return Above(self.options.tau * self.bound)

    def rule(self) -> ClipRule:
        """Return the rule that scales up to Z and clips above."""
        return GlobalAdapt(self.training.clip_norm, self.bound)

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Set the next Z from a noisy count `[1]`."""
        log_bound = math.log(self.bound) - self.options.eta + float(counts) / expected_batch
        least = self.training.clip_norm if self.options.min_bound == "clip-norm" else self.options.min_bound
        floor, ceiling = 1e-6 * self.training.clip_norm, 1e6 * self.options.bound
        self.bound = max(min(math.exp(min(log_bound, 700.0)), ceiling), floor, least)
