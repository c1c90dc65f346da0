"""A clip rule or count query of the user's own, tried on norms that are made up: does it keep what it promises?

What clips is trusted with the guarantee. The rules of fedfair are proved; others are tried before they see a record.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fedfair.mechanisms import clipping, counting
from fedfair.mechanisms.rule_numbers import is_number
from fedfair.plugins.user_files import UserFileError, blaming_user_files, place_of

_LENGTHS = (0.0, 1e-9, 1e-3, 0.5, 1.0, 2.0, 1e3, 1e9, 1e30)
_SLACK = 1 + 1e-6  # of rounding


def refuse_broken_rule(rule: Any, groups: int) -> None:
    """Raise `ValueError` for a rule whose sensitivities are not one number for each group, or are exceeded.

    Args:
        rule: Clip rule.
        groups: Number of groups K.
    """
    _refuse_methods(rule, "clip rule", {"coefficients": "norms, groups", "group_sensitivities": "groups"})
    with blaming_user_files():
        bounds = rule.group_sensitivities(groups)
    if not (isinstance(bounds, tuple) and len(bounds) == groups and all(is_number(b) and b >= 0 for b in bounds)):
        raise _refusal(rule, "group_sensitivities", f"gives {bounds!r} for {groups} groups: it must be a tuple "
                         "of one number of at least 0 for each group")
    if type(rule).__module__ != clipping.__name__:
        _refuse_unhashable(rule, "clip rule")
        _try_rule(rule, groups)


def refuse_broken_query(query: Any, groups: int) -> None:
    """Raise `ValueError` for a query that does not give one tensor of counts, or counts a record more than once.

    Args:
        query: Count query.
        groups: Number of groups K.
    """
    _refuse_methods(query, "count query", {"counts": "norms, groups, number_of_groups"})
    for name, value in vars(query).items():
        if isinstance(value, tuple) and len(value) != groups and type(query).__module__ == counting.__name__:
            raise ValueError(f"{name} of the count query {type(query).__name__} is {value!r}: give one number for each "
                             f"of the {groups} groups")
    if type(query).__module__ != counting.__name__:
        _refuse_unhashable(query, "count query")
        _try_query(query, groups)


@lru_cache(maxsize=256)
def _try_rule(rule: Any, groups: int) -> None:
    """Try a rule on gradients of all groups and lengths, together and in halves."""
    bounds = torch.tensor(rule.group_sensitivities(groups), dtype=torch.float64)
    norms, numbers = _made_up(groups, bounds)
    factors = _factors(rule, norms, numbers)
    added = factors.abs() * norms
    if not bool((added <= bounds[numbers] * _SLACK).all()):
        worst = int((added - bounds[numbers]).nan_to_num(torch.inf).argmax())
        raise _refusal(rule, "coefficients", f"scales a gradient of the norm {float(norms[worst]):g} to "
                         f"{float(added[worst]):g}, but group_sensitivities promises at most "
                         f"{float(bounds[numbers[worst]]):g}: the noise would not cover it")
    small = norms <= norms.median()
    for half in (small, ~small, torch.arange(0, len(norms), 2), torch.arange(1, len(norms), 2)):
        if not torch.allclose(_factors(rule, norms[half], numbers[half]), factors[half], rtol=1e-9, atol=0):
            raise _refusal(rule, "coefficients", "gives a gradient another factor when the others of its batch "
                             "change: a factor may depend on the gradient's own norm and group alone")


@lru_cache(maxsize=256)
def _try_query(query: Any, groups: int) -> None:
    """Try a query on one record of each group and length, and on none."""
    norms, numbers = _made_up(groups, torch.ones(groups))
    none = _counted(query, norms[:0], numbers[:0], groups)
    for i in range(len(norms)):
        counts = _counted(query, norms[i : i + 1], numbers[i : i + 1], groups)
        if counts.shape != none.shape or not float((counts - none).norm()) <= _SLACK:
            raise _refusal(query, "counts", f"goes from {none.tolist()} to {counts.tolist()} with one record: "
                             "a record must be in at most one of the counts, and they must keep their shape")


def _factors(rule: Any, norms: Tensor, groups: Tensor) -> Tensor:
    """Return a rule's factors; raise `ValueError` unless there is a finite one for each gradient."""
    with blaming_user_files():
        factors = rule.coefficients(norms, groups)
    if not isinstance(factors, Tensor) or factors.shape != norms.shape:
        raise _refusal(rule, "coefficients", f"returns {_described(factors)} for {len(norms)} gradients: it "
                         "must be a tensor of one factor for each")
    if not bool(factors.isfinite().all()):
        bad = int((~factors.isfinite()).nonzero()[0])
        raise _refusal(rule, "coefficients", f"gives the factor {float(factors[bad])} to a gradient of the norm "
                         f"{float(norms[bad]):g}: every factor must be finite, and a zero gradient stays zero")
    return factors.to(norms.dtype)


def _counted(query: Any, norms: Tensor, groups: Tensor, number: int) -> Tensor:
    """Return a query's counts; raise `ValueError` for what is no tensor."""
    with blaming_user_files():
        counts = query.counts(norms, groups, number)
    if not isinstance(counts, Tensor):
        raise _refusal(query, "counts", f"returns {_described(counts)}: it must be a tensor of counts")
    return counts.double()


def _made_up(groups: int, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Return norms in double precision, and groups: every length in every group."""
    finite = bounds[bounds.isfinite()].double()
    near = torch.cat([finite * factor for factor in (0.5, 1.0, 1.5)])[:30]
    lengths = torch.cat([torch.tensor(_LENGTHS, dtype=torch.float64), near])
    return lengths.repeat(groups), torch.arange(groups).repeat_interleave(len(lengths))


def _refuse_methods(value: Any, kind: str, methods: dict[str, str]) -> None:
    """Raise `ValueError` for a rule or query without one of its methods."""
    for name, arguments in methods.items():
        if isinstance(value, type) or not callable(getattr(value, name, None)):
            where = f"{place_of(type(value))}: " if hasattr(value, "__dict__") else ""
            raise ValueError(f"{where}a {type(value).__name__} is no {kind}: it has no method "
                             f"{name}(self, {arguments})")


def _refuse_unhashable(value: Any, kind: str) -> None:
    """Raise `ValueError` for a rule or query that is not frozen, or holds lists or tensors."""
    held = next((name for name, part in vars(value).items()
                 if not all(map(is_number, part if isinstance(part, tuple) else (part,)))
                 and not isinstance(part, str | bool | None)), None)
    if held is not None:
        raise ValueError(f"{held} of the {kind} {type(value).__name__} is {_described(getattr(value, held))}: it "
                         "travels as JSON, so give a number or a tuple of numbers")
    try:
        hash(value)
    except TypeError:
        raise UserFileError(f"{place_of(type(value))}: the {kind} {type(value).__name__} can be changed: decorate it "
                            "with @dataclass(frozen=True)") from None


def _refusal(value: Any, method: str, said: str) -> ValueError:
    """Return the error for a method of a rule or query, with file and line unless it is one of fedfair's."""
    name = f"{method} of {type(value).__name__} {said}"
    if type(value).__module__ in (clipping.__name__, counting.__name__):
        return ValueError(name)
    return UserFileError(f"{place_of(getattr(type(value), method))}: {name}")


def _described(value: object) -> str:
    """Describe what was returned in place of a tensor."""
    if value is None:
        return "nothing"
    return f"a tensor of the shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
