"""The numbers of clip rules and count queries: what bounds nothing is refused wherever a rule is made or read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

LEAST, MOST = 1e-30, 1e30
"""Bounds on the numbers of a clip rule: float32 ends at 3.4e38, and loses digits below 1.2e-38."""

_AT_LEAST_ZERO = ("weights",)  # a group of weight 0 adds nothing; all other numbers are divided by, or divide


def refuse_bad_numbers(rule: Any) -> None:
    """Raise `ValueError` unless all fields are finite numbers above 0, or tuples of them; a weight may be 0.

    With a negative clip norm for one group the group would be unbounded, under noise for another group's.

    Args:
        rule: Clip rule, a frozen dataclass.
    """
    for name, value in vars(rule).items():
        least = 0.0 if name in _AT_LEAST_ZERO else math.ulp(0.0)
        numbers = value if isinstance(value, tuple) and value else (value,)
        if not all(is_number(number) and least <= number < math.inf for number in numbers):
            above = "of at least 0" if least == 0 else "above 0"
            several = "all must be finite numbers" if isinstance(value, tuple) else "it must be a finite number"
            raise ValueError(f"{name} of the clip rule {type(rule).__name__} is {_shown(value)}: {several} {above}"
                             f"{_remedy(value)}")
        refuse_unheld(rule, name, numbers)


def refuse_unheld(rule: Any, name: str, numbers: Iterable[float]) -> None:
    """Raise `ValueError` for numbers above 0 that float32 does not hold exactly enough: gradients would pass the clip.

    Args:
        rule: Clip rule.
        name: What the numbers are.
        numbers: Some of its numbers, or products or ratios of them, at least 0.
    """
    for number in numbers:
        if number and not LEAST <= number <= MOST:
            raise ValueError(f"{name} of the clip rule {type(rule).__name__} is {number:g}, with which float32 does "
                             "not compute exactly enough to bound gradients: it must be from "
                             f"{LEAST:g} to {MOST:g}")


def is_number(value: object) -> bool:
    """Say whether a value is one of Python's numbers, as JSON has them."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """Show a value in few words."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of the shape {list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _remedy(value: object) -> str:
    """Say how a value of another kind becomes one that travels."""
    if isinstance(value, torch.Tensor):
        return ", for example float(x) of a tensor x" if value.dim() == 0 else ", for example tuple(x.tolist())"
    return ""
