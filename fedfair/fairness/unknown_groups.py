"""Decisions by group for rows whose group is missing or was not there in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedfair.fairness.reject_option import RejectOption
from fedfair.plugins.registry import unknown


def decided(rule: RejectOption, output: Tensor, named: Sequence[Any], groups: Sequence[str]) -> Tensor:
    """Decide on a class for each row; one whose group is not known gets the class that every group would get.

    Args:
        rule: Rule that decides by group.
        output: Logits of the model, `[n, classes]`.
        named: Name of each row's group, `[n]`; a missing one is None or NaN.
        groups: Names of the groups in the order of their numbers, `[K]`.

    Returns:
        Class numbers, `[n]`.

    Raises:
        ValueError: If the decision on a row depends on its group, which is missing or unknown.
    """
    numbers = {name: number for number, name in enumerate(groups)}
    group = torch.tensor([numbers.get(str(name), -1) for name in named], dtype=torch.long)
    decisions = rule.predict(output, group.clamp(min=0))
    for number in range(len(groups)):
        as_if = rule.predict(output, torch.full_like(group, number))
        differing = (group < 0) & (as_if != decisions)
        if differing.any():
            raise _undecided(int(differing.long().argmax()), named, groups)
    return decisions


def _undecided(row: int, named: Sequence[Any], groups: Sequence[str]) -> ValueError:
    """Return the error of a row whose group decides."""
    if named[row] is None or named[row] != named[row]:  # NaN alone differs from itself
        return ValueError(f"row {row + 1} has no group, and the decision on it depends on its group: fill it in ("
                          f"{', '.join(groups)}), or leave the row out")
    return unknown(f"group, on which the decision on row {row + 1} depends,", str(named[row]), groups)
