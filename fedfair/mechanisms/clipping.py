"""Clip rules: by how much each example's gradient is scaled, and how much one example can then add to the sum.

A rule is a frozen description that travels from the server to the clients. `K` is the number of groups, `n_i` the norm
of example i's gradient, `a_i` its group. A zero gradient stays zero under every rule; a NaN stays NaN, so that the
round can refuse it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedfair.plugins.registry import Registry


class ClipRule(Protocol):
    """Scales each example's gradient so that a record of group k adds at most `group_sensitivities(K)[k]`."""

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """The factor of each example, `[B]`, from gradient norms `[B]` and group numbers `[B]`."""

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """The most, in Euclidean norm, that adding or removing one record of each group changes the sum by: `[K]`."""


CLIP_RULES: Registry[type[ClipRule]] = Registry("clip rule")
"""The rules that can travel, by name."""


def sensitivity(rule: ClipRule, groups: int) -> float:
    """The most that any record can add, over all groups, whether or not the batch holds one of them."""
    return max(rule.group_sensitivities(groups))


def parameters(rule: ClipRule) -> dict[str, tuple[float, ...]]:
    """The numbers of a rule by name: one for all groups, or one for each."""
    return {name: value if isinstance(value, tuple) else (value,) for name, value in vars(rule).items()}


def capped(rule: ClipRule, most: tuple[float, ...]) -> ClipRule:
    """The rule with sensitivities of at most `most` `[K]`, by group.

    Raises `ValueError` for a rule that cannot treat groups differently.
    """
    if isinstance(rule, PerGroup):
        return PerGroup(tuple(map(min, rule.clip_norms, most)))
    if isinstance(rule, Reweighted):
        return Reweighted(rule.clip_norms, tuple(min(w, m / c) for w, m, c in zip(
            rule.weights, most, rule.clip_norms, strict=True)))
    raise ValueError(f"the clip rule {CLIP_RULES.name_of(rule)!r} treats all groups alike: a limit by group needs a "
                     "rule with bounds or weights by group, as of dpsgd-f or naive")


@CLIP_RULES.register("none")
@dataclass(frozen=True)
class Unclipped:
    """`c_i = 1`: plain SGD; nothing bounds a record."""

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return torch.ones_like(norms)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (math.inf,) * groups


@CLIP_RULES.register("flat")
@dataclass(frozen=True)
class Flat:
    """`c_i = min(1, C / n_i)`, one clip norm C for all (Abadi et al. 2016, Algorithm 1)."""

    clip_norm: float

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return (self.clip_norm / norms).clamp(max=1)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (self.clip_norm,) * groups


@CLIP_RULES.register("per-group")
@dataclass(frozen=True)
class PerGroup:
    """`c_i = min(1, C_{a_i} / n_i)`, a clip norm for each group (Xu et al. 2021, Algorithm 2)."""

    clip_norms: tuple[float, ...]

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return (norms.new_tensor(self.clip_norms)[groups] / norms).clamp(max=1)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return self.clip_norms


@CLIP_RULES.register("global")
@dataclass(frozen=True)
class Global:
    """`c_i = C / Z` if `n_i <= Z`, else 0: scaled alike or dropped (Bu et al. 2021; Esipova et al. 2023, Alg. 2)."""

    clip_norm: float
    bound: float

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return torch.where(norms <= self.bound, self.clip_norm / self.bound, 0.0 * norms)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (self.clip_norm,) * groups


@CLIP_RULES.register("global-adapt")
@dataclass(frozen=True)
class GlobalAdapt:
    """`c_i = C / Z` if `n_i <= Z`, else `C / n_i`: scaled alike, or clipped (Esipova et al. 2023, Algorithm 2)."""

    clip_norm: float
    bound: float

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return self.clip_norm / norms.clamp(min=self.bound)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (self.clip_norm,) * groups


@CLIP_RULES.register("reweighted")
@dataclass(frozen=True)
class Reweighted:
    """`c_i = w_{a_i} min(1, C_{a_i} / n_i)`, a clip norm and a weight for each group (Xu et al. 2021, Algorithm 3, with
    the same clip norm for all).
    """

    clip_norms: tuple[float, ...]
    weights: tuple[float, ...]

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        clip_norms, weights = (norms.new_tensor(values)[groups] for values in (self.clip_norms, self.weights))
        return weights * (clip_norms / norms).clamp(max=1)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return tuple(weight * clip_norm for weight, clip_norm in zip(self.weights, self.clip_norms, strict=True))
