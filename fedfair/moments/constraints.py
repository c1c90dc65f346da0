"""Linear classifiers whose mean scores differ less between groups: of all of them, those that lose least.

With u_k the mean features of group k, and U = [u_2 - u_1, ..., u_K - u_1], the classifier

    w_tau = w - (1 - tau) P^-1 U (U' P^-1 U)^-1 U' w

has U' w_tau = tau U' w, and of all that do the least squared loss (Lagrange). tau = 1 leaves w as it is, 0 makes mean
scores equal. That is not yet equal rates: where scores of groups are spread differently, a tau below 0 may be needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedfair.moments.heads import Head
from fedfair.moments.release import Moments

Constraint = Literal["demographic_parity", "equal_opportunity", "both"]
"""Whose mean scores become equal: those of all records, of records of the favourable class, or both."""


def directions(moments: Moments, constraint: Constraint, favourable: int | None) -> Tensor:
    """Return U, by which mean features of groups differ, `[d, K - 1]`, or `[d, 2 (K - 1)]` for both.

    Args:
        moments: What was released.
        constraint: Whose means count.
        favourable: Number of the favourable class; None if none is named.

    Raises:
        ValueError: If the constraint needs a favourable class, and none is named.
    """
    if constraint != "demographic_parity" and favourable is None:
        raise ValueError(f"options.constraint is {constraint!r}, but no class is favourable: name one by favourable, "
                         'or take "demographic_parity"')
    labels: Mapping[Constraint, Sequence[int | None]] = {
        "demographic_parity": [None], "equal_opportunity": [favourable], "both": [None, favourable]}
    return torch.cat([_differences(moments.group_means(label)) for label in labels[constraint]], 1)


def constrained(head: Head, across: Tensor, tau: float) -> Tensor:
    """Return weights `[d, C]` whose mean scores differ tau times as much between groups.

    Args:
        head: Classifier without a constraint.
        across: U, `[d, m]`.
        tau: Factor that is left of the differences; 1 for all.
    """
    steps = head.inverse @ across
    solved: Tensor = torch.linalg.pinv(across.T @ steps, hermitian=True) @ (across.T @ head.weights)
    return head.weights - (1 - tau) * steps @ solved


def _differences(means: Tensor) -> Tensor:
    """Return by how much the rows after the first differ from it, as columns."""
    return (means[1:] - means[:1]).T
