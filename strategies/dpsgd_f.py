"""DPSGD-F: a clip norm for each group, from noisy counts. Xu et al. 2021, Algorithm 2.

DPSGD-F with clip norms that follow a quantile of each group's gradient norms. After Andrew et al. 2021.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, PerGroup, Reweighted, sensitivity
from fedfair.mechanisms.counting import AboveAndBelow, CountQuery
from fedfair.protocol.fields import GroupBound, Positive
from strategies.server.strategy import Strategy


class DpsgdF(Strategy):
    """Gives a larger clip norm to a group whose gradients exceed the base clip norm more often.

    Symbols, for group k of K:

        C0      base clip norm (`clip_norm`)             b       expected batch size
        m_k     noisy number of gradients above C0       o_k     noisy number of the others
        r_k     m_k / (m_k + o_k), the share above       C_k     clip norm of the group

    Before the gradients of each batch,

        C_k = C0 (1 + r_k / (max(sum_j m_j, 1) / b))         bounds = "paper"
        C_k = C0 (1 + r_k / mean_j r_j)                      bounds = "authors", counts floored
        C_k = C0 (1 + r_k / (sum_j m_j / b))                 bounds = "printed"; "floored", counts floored

    where m_k and o_k are at least 0, but for "printed". The first is the listing of Xu et al. (Algorithm 2) made safe:
    that the counts are cut at 0, that r_k = 1 for a group without records, and that the sum is at least 1 is ours.
    "printed" is the listing itself. "floored" is Algorithm 3 of Esipova et al. 2023, which divides by the realised size
    of the batch in place of the public b. What these two give for a group may bound nothing, as it is not a finite
    number above 0; the group then has C0 in that step. Noisy counts alone decide that, so it costs no privacy.
    "authors" is in the code of Esipova et al. and of Yang et al. 2024, the same where groups are of one size.

    The noise is relative to the largest C_k of all groups. `max_bound` caps C_k / C0. `noise_at` = "base" leaves the
    noise at C0, as Algorithm 3 of Esipova et al. has it; the ledger then charges what really follows.

    `weighting` = "clip-norms" also multiplies each clipped gradient by C_k / mean_j C_j, as what seems to be a port of
    the authors' code does, though no paper says so. A record then adds at most C_k^2 / mean_j C_j, to which the noise
    is relative; the port leaves it at C0 max_k C_k / mean_j C_j, which is `noise_at` = "base".
    """

    class Options(Strategy.Options):
        """See `DpsgdF`."""

        bounds: Literal["paper", "authors", "printed", "floored"] = "paper"
        max_bound: GroupBound | None = None
        noise_at: Literal["largest", "base"] = "largest"
        weighting: Literal["none", "clip-norms"] = "none"

    counts_first = True
    samplings = Strategy.samplings | {"balls-in-bins"}
    state = ("clip_norms",)
    options: Options

    def prepare(self) -> None:
        """Start every group at the base clip norm.

        Raises `ValueError` for noise at the base outside a simulation, with a target epsilon, which it would miss, or
        in local epochs, where clients add noise at the largest clip norm.
        """
        if self.options.noise_at == "base" and self.training.randomness == "system":
            raise ValueError('noise_at is "base", which is only for comparison in simulation, but randomness is '
                             '"system": take noise_at "largest"')
        if self.options.noise_at == "base" and self.training.target_epsilon is not None:
            raise ValueError('noise_at is "base", with which no target_epsilon can be met, since what the noise '
                             'protects depends on the clip norms to come: give noise_multiplier, or take "largest"')
        if self.options.noise_at == "base" and self.sync == "epoch":
            raise ValueError('noise_at is "base", but in local epochs (sync = "epoch") every client adds noise at the '
                             'largest clip norm: take noise_at "largest", or sync "step"')
        self.clip_norms = (self.training.clip_norm,) * len(self.population.names)

    def query(self) -> CountQuery:
        """Count the gradients of each group above C0, and the others."""
        return AboveAndBelow((self.training.clip_norm,) * len(self.population.names))

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Set new clip norms from noisy counts `[2, K]`."""
        above, below = counts.double()
        factors = _FACTORS[self.options.bounds](above, below, expected_batch)
        factors = factors.clamp(max=self.options.max_bound or math.inf)
        self.clip_norms = tuple((self.training.clip_norm * factors).tolist())

    def unproved(self) -> str | None:
        """Return why noise at the base is not proved: what it protects depends on earlier outputs."""
        return None if self.options.noise_at == "largest" else (
            "the noise stays at the base clip norm, so that how much of it protects a record follows from earlier "
            "noisy counts; the figures compose what was in force as if it had been fixed in advance")

    def rule(self) -> ClipRule:
        """Return the groups' clip norms, with weights if the options say so."""
        if self.options.weighting == "none":
            return PerGroup(self.clip_norms)
        return Reweighted(self.clip_norms, self._weights())

    def sum_noise(self, rule: ClipRule) -> float:
        """Return sigma, relative to the largest clip norm; less if the noise stays at the base."""
        if self.options.noise_at == "largest":
            return self.noise.of_sum
        at_base = self.training.clip_norm * max(self._weights())
        return self.noise.of_sum * at_base / sensitivity(rule, len(self.population.names))

    def _weights(self) -> tuple[float, ...]:
        """Return the factors of each group's clipped gradients, `[K]`."""
        if self.options.weighting == "none":
            return (1.0,) * len(self.clip_norms)
        mean = sum(self.clip_norms) / len(self.clip_norms)
        return tuple(clip_norm / mean for clip_norm in self.clip_norms)


def _safe(above: Tensor, below: Tensor, expected_batch: float) -> Tensor:
    """Return C_k / C0 of "paper", `[K]`, from noisy numbers of gradients above C0, `[K]`, and of the others, `[K]`."""
    above, below = above.clamp(min=0), below.clamp(min=0)
    return 1 + _shares(above, below) / (above.sum().clamp(min=1) / expected_batch)


def _of_authors(above: Tensor, below: Tensor, expected_batch: float) -> Tensor:
    """Return those of "authors"; see `_safe`."""
    shares = _shares(above.clamp(min=0).floor(), below.clamp(min=0).floor())
    return 1 + (shares / shares.mean() if bool(shares.any()) else shares)


def _as_printed(above: Tensor, below: Tensor, expected_batch: float) -> Tensor:
    """Return those of "printed", with 1 in place of what bounds nothing; see `_safe`."""
    factors = 1 + above / (above + below) / (above.sum() / expected_batch)
    return torch.where((factors > 0) & factors.isfinite(), factors, 1.0)


def _floored(above: Tensor, below: Tensor, expected_batch: float) -> Tensor:
    """Return those of "floored"; see `_as_printed`."""
    return _as_printed(above.floor().clamp(min=0), below.floor().clamp(min=0), expected_batch)


def _shares(above: Tensor, below: Tensor) -> Tensor:
    """Return the share of gradients above C0, `[K]`: 1 for a group without records."""
    return torch.where(above + below > 0, above / (above + below), 1.0)


_FACTORS = {"paper": _safe, "authors": _of_authors, "printed": _as_printed, "floored": _floored}


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

    samplings = Strategy.samplings | {"balls-in-bins"}
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
