"""Clip rules: by how much each per-example gradient is scaled, and how much one example can then add to the sum.

A rule is a frozen description that travels from the server to the clients. `K` is the number of groups, `n_i` the norm
of example i's gradient, `a_i` its group, `c_i` the factor by which it is scaled. A zero gradient stays zero under every
rule. A NaN stays NaN; a node leaves such gradients out before it sums. A rule cannot be made with a number that bounds
nothing, wherever it comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import mul
from typing import Protocol

import torch
from torch import Tensor

from fedfair.mechanisms.rule_numbers import refuse_bad_numbers, refuse_unheld
from fedfair.plugins.registry import Registry


class ClipRule(Protocol):
    """A rule that scales each per-example gradient, so that a record adds at most its group's sensitivity.

    Examples:
        >>> norms, groups = torch.tensor([3.0, 3.0]), torch.tensor([0, 1])
        >>> rule: ClipRule = PerGroup((1.0, 2.0))
        >>> rule.coefficients(norms, groups) * norms
        tensor([1., 2.])
        >>> rule.group_sensitivities(2)
        (1.0, 2.0)
    """

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """Return the factor of each example.

        Args:
            norms: Per-example gradient norms, `[B]`.
            groups: Group numbers, `[B]`.

        Returns:
            Factors, `[B]`. A record of group k then adds at most `group_sensitivities(K)[k]` in Euclidean norm.
        """

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """Return the sensitivity of the sum to one record of each group.

        Args:
            groups: Number of groups K.

        Returns:
            The most, in Euclidean norm, by which adding or removing one record of each group changes the sum, `[K]`.
        """


CLIP_RULES: Registry[type[ClipRule]] = Registry("clip rule", ("coefficients", "group_sensitivities"))
"""The rules that can travel, by name."""


def sensitivity(rule: ClipRule, groups: int) -> float:
    """Return the most that any record can add to the sum, in Euclidean norm.

    Args:
        rule: Clip rule.
        groups: Number of groups K; all count, whether or not the batch has records of them.

    Examples:
        >>> sensitivity(PerGroup((1.0, 2.0)), 2)
        2.0
    """
    return max(rule.group_sensitivities(groups))


def parameters(rule: ClipRule) -> dict[str, tuple[float, ...]]:
    """Return the numbers that make up a rule.

    Args:
        rule: Clip rule.

    Returns:
        By name of the field, one number for all groups, `[1]`, or one for each, `[K]`.

    Examples:
        >>> parameters(Global(1.0, bound=4.0))
        {'clip_norm': (1.0,), 'bound': (4.0,)}
    """
    return {name: value if isinstance(value, tuple) else (value,) for name, value in vars(rule).items()}


def capped(rule: ClipRule, most: tuple[float, ...]) -> ClipRule:
    """Return the rule with lower clip norms or weights, where its sensitivities are above a limit.

    Args:
        rule: Clip rule.
        most: Largest sensitivity that each group may have, `[K]`.

    Raises:
        ValueError: If the rule cannot treat groups differently.

    Examples:
        >>> capped(PerGroup((1.0, 2.0)), (1.5, 1.5))
        PerGroup(clip_norms=(1.0, 1.5))
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
    """`c_i = 1`: plain SGD. Nothing bounds what a record adds.

    Examples:
        >>> Unclipped().group_sensitivities(2)
        (inf, inf)
    """

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return torch.ones_like(norms)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (math.inf,) * groups


@CLIP_RULES.register("flat")
@dataclass(frozen=True)
class Flat:
    """`c_i = min(1, C / n_i)`: the same clip norm for all (Abadi et al. 2016, Algorithm 1).

    Args:
        clip_norm: Clip norm C, above 0.

    Examples:
        >>> Flat(1.0).coefficients(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]))
        tensor([1.0000, 0.5000, 0.1250])
    """

    clip_norm: float

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that bounds nothing."""
        refuse_bad_numbers(self)

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return (self.clip_norm / norms).clamp(max=1)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (self.clip_norm,) * groups


@CLIP_RULES.register("per-group")
@dataclass(frozen=True)
class PerGroup:
    """`c_i = min(1, C_{a_i} / n_i)`: a clip norm for each group (Xu et al. 2021, Algorithm 2).

    Args:
        clip_norms: Clip norms C_k, above 0, `[K]`.

    Examples:
        >>> PerGroup((1.0, 2.0)).coefficients(torch.tensor([4.0, 4.0]), torch.tensor([0, 1]))
        tensor([0.2500, 0.5000])
    """

    clip_norms: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that bounds nothing."""
        refuse_bad_numbers(self)

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return (norms.new_tensor(self.clip_norms)[groups] / norms).clamp(max=1)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return self.clip_norms


@CLIP_RULES.register("global")
@dataclass(frozen=True)
class Global:
    """`c_i = C / Z` if `n_i <= Z`, else 0: gradients up to Z are scaled alike, longer ones are dropped.

    Sources: Bu et al. 2021; Esipova et al. 2023, Algorithm 2.

    Args:
        clip_norm: Clip norm C, above 0.
        bound: Bound Z on the norms, above 0.

    Examples:
        >>> Global(1.0, bound=4.0).coefficients(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]))
        tensor([0.2500, 0.2500, 0.0000])
    """

    clip_norm: float
    bound: float

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that bounds nothing."""
        refuse_bad_numbers(self)
        refuse_unheld(self, "clip_norm / bound", [self.clip_norm / self.bound])

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return torch.where(norms <= self.bound, self.clip_norm / self.bound, 0.0 * norms)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (self.clip_norm,) * groups


@CLIP_RULES.register("global-adapt")
@dataclass(frozen=True)
class GlobalAdapt:
    """`c_i = C / Z` if `n_i <= Z`, else `C / n_i`: gradients up to Z are scaled alike, longer ones are clipped.

    Source: Esipova et al. 2023, Algorithm 2.

    Args:
        clip_norm: Clip norm C, above 0.
        bound: Bound Z on the norms, above 0.

    Examples:
        >>> GlobalAdapt(1.0, bound=4.0).coefficients(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]))
        tensor([0.2500, 0.2500, 0.1250])
    """

    clip_norm: float
    bound: float

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that bounds nothing."""
        refuse_bad_numbers(self)
        refuse_unheld(self, "clip_norm / bound", [self.clip_norm / self.bound])

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return self.clip_norm / norms.clamp(min=self.bound)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (self.clip_norm,) * groups


@CLIP_RULES.register("reweighted")
@dataclass(frozen=True)
class Reweighted:
    """`c_i = w_{a_i} min(1, C_{a_i} / n_i)`: a clip norm and a weight for each group.

    Xu et al. 2021, Algorithm 3, has the same clip norm for all.

    Args:
        clip_norms: Clip norms C_k, above 0, `[K]`.
        weights: Weights w_k, at least 0, `[K]`.

    Examples:
        >>> rule = Reweighted((1.0, 1.0), weights=(1.0, 3.0))
        >>> rule.coefficients(torch.tensor([2.0, 2.0]), torch.tensor([0, 1])), rule.group_sensitivities(2)
        (tensor([0.5000, 1.5000]), (1.0, 3.0))
    """

    clip_norms: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that bounds nothing."""
        refuse_bad_numbers(self)
        refuse_unheld(self, "weight times clip norm", map(mul, self.weights, self.clip_norms))

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        clip_norms, weights = (norms.new_tensor(values)[groups] for values in (self.clip_norms, self.weights))
        return weights * (clip_norms / norms).clamp(max=1)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return tuple(weight * clip_norm for weight, clip_norm in zip(self.weights, self.clip_norms, strict=True))


@CLIP_RULES.register("soft")
@dataclass(frozen=True)
class Soft:
    """`c_i = C tanh(n_i / C) / n_i`: short gradients are kept, longer ones approach the norm C (SoftAdaClip).

    Source: arXiv 2510.01447.

    Args:
        clip_norm: Clip norm C, above 0.

    Examples:
        >>> Soft(1.0).coefficients(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]))
        tensor([0.9242, 0.4820, 0.1250])
    """

    clip_norm: float

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that bounds nothing."""
        refuse_bad_numbers(self)

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        lengths = norms / self.clip_norm
        return torch.where(lengths == 0, 1.0, lengths.tanh() / lengths)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (self.clip_norm,) * groups


@CLIP_RULES.register("automatic")
@dataclass(frozen=True)
class Automatic:
    """`c_i = C / (n_i + gamma)`: gradients are normalised, the shortest ones less (Bu et al. 2022, AUTO-S).

    Args:
        clip_norm: Norm C that long gradients approach, above 0.
        gamma: Stability constant, above 0, in the units of a norm.

    Examples:
        >>> Automatic(1.0, gamma=0.5).coefficients(torch.tensor([0.5, 2.0, 8.0]), torch.tensor([0, 0, 1]))
        tensor([1.0000, 0.4000, 0.1176])
    """

    clip_norm: float
    gamma: float

    def __post_init__(self) -> None:
        """Raise `ValueError` for a number that bounds nothing."""
        refuse_bad_numbers(self)

    def coefficients(self, norms: Tensor, groups: Tensor) -> Tensor:
        """See `ClipRule`."""
        return self.clip_norm / (norms + self.gamma)

    def group_sensitivities(self, groups: int) -> tuple[float, ...]:
        """See `ClipRule`."""
        return (self.clip_norm,) * groups
