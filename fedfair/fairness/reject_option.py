"""Reject-option classification: near the decision boundary, the group decides.

Sources: Kamiran, Karim and Zhang 2012; Yang et al. 2024, Algorithms 3 and 4. Beyond them, there may be any number of
groups, each with a gamma, and more than two classes, of which one is favourable.

What a smaller gamma leaves to the group, a larger one does too, so that only the order of a group's records matters.
With a grid of G gammas, a record falls into one of 2 G cells, from the surest favourable one to the surest other one.
A group that is *shifted* by s in -(G - 1) .. G - 1 gets the favourable class in all cells before the (G + s)-th. A
deprived group with the i-th gamma (from 0) is shifted by i, a privileged one by -i; a shift of 0 keeps the model's
decisions.

Decisions by group for rows whose group is missing or was not there in training.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fedfair.plugins.registry import unknown

GAMMAS = torch.linspace(0.5, 1, 100, dtype=torch.float64)
"""The grid of Yang et al. 2024, Algorithm 4."""

CELLS = 2 * len(GAMMAS)
"""Number of score cells of each group."""

UNSHIFTED = len(GAMMAS) - 1
"""Column of shift 0 in a table with a column for each shift, as of `favoured`."""


@dataclass(frozen=True)
class RejectOption:
    """A decision rule by group.

    A record whose confidence max(p, 1 - p) is below its group's gamma gets the favourable class if the group is
    deprived, and the most probable other class if it is not. All other records keep the model's decision. Two groups
    with the same gamma are Algorithm 3 of Yang et al. 2024.

    Args:
        gammas: Confidence, from 0.5 to 1, below which the group decides; one for each group, `[K]`.
        deprived: Whether each group is deprived, `[K]`.
        favourable: Number of the favourable class.

    Examples:
        >>> rule = RejectOption(gammas=(0.7, 0.7), deprived=(True, False))
        >>> unsure, sure = [0.4, 0.0], [4.0, 0.0]  # logits of classes 0 and 1, which is favourable
        >>> rule.predict(torch.tensor([unsure, unsure, sure, sure]), torch.tensor([0, 1, 0, 1]))
        tensor([1, 0, 0, 0])
        >>> RejectOption.from_json(rule.to_json()) == rule
        True
        >>> RejectOption.shifted((99, 0), rule.deprived, favourable=1)
        RejectOption(gammas=(1.0, 0.5), deprived=(True, False), favourable=1)
    """

    gammas: tuple[float, ...]
    deprived: tuple[bool, ...]
    favourable: int = 1

    @staticmethod
    def shifted(shifts: Sequence[int], deprived: Sequence[bool], favourable: int) -> RejectOption:
        """Return the rule that shifts the groups' decisions along the grid `GAMMAS`.

        Args:
            shifts: Shift of each group, `[K]`; only its size counts.
            deprived: Whether each group is deprived and so shifted up, `[K]`; the others are shifted down.
            favourable: Number of the favourable class.
        """
        return RejectOption(tuple(float(GAMMAS[abs(shift)]) for shift in shifts), tuple(deprived), favourable)

    def predict(self, output: Tensor, group: Tensor) -> Tensor:
        """Decide on a class for each record.

        Args:
            output: Logits of the model, `[n, classes]`.
            group: Group numbers, `[n]`.

        Returns:
            Class numbers, `[n]`.
        """
        p, other = score(output, self.favourable)
        gamma = torch.tensor(self.gammas, dtype=torch.float64, device=p.device)[group]
        deprived = torch.tensor(self.deprived, device=p.device)[group]
        favoured = torch.where(torch.maximum(p, 1 - p) < gamma, deprived, p >= 0.5)
        return torch.where(favoured, self.favourable, other)

    def to_json(self) -> str:
        """Return the rule as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> RejectOption:
        """Return the rule from its text.

        Args:
            text: What `to_json` returned.
        """
        fields = json.loads(text)
        return RejectOption(tuple(fields["gammas"]), tuple(fields["deprived"]), fields["favourable"])


def score(output: Tensor, favourable: int) -> tuple[Tensor, Tensor]:
    """Return how probable the favourable class is against its strongest rival, p `[n]`, and that rival `[n]`.

    p = P(favourable) / (P(favourable) + P(rival)) for logits `[n, classes]`. With two classes, p is the probability of
    the favourable class; with more, p >= 0.5 where the model chooses that class.
    """
    logits = output.double()
    rest = logits.clone()
    rest[:, favourable] = -torch.inf
    strongest, rival = rest.max(1)
    return torch.sigmoid(logits[:, favourable] - strongest), rival


def score_counts(p: Tensor, group: Tensor, groups: int) -> Tensor:
    """Count the records, with scores p `[n]`, in each cell of each group: `[K, 2 G]`; each record is in one cell."""
    reached = torch.searchsorted(GAMMAS.to(p.device), torch.maximum(p, 1 - p), right=True)
    cell = torch.where(p >= 0.5, len(GAMMAS) - reached, len(GAMMAS) - 1 + reached)
    return torch.bincount(group * CELLS + cell, minlength=groups * CELLS).view(groups, CELLS).double().cpu()


def favoured(counts: Tensor) -> Tensor:
    """Count the records of each group that get the favourable class at every shift: `[K, 2 G - 1]`.

    Noisy results are made to grow with the shift, as exact ones do; this is post-processing.
    """
    return counts.cumsum(1).cummax(1).values[:, :-1]


def below_average(counts: Tensor) -> tuple[bool, ...]:
    """Return whether each group gets the favourable class less often than all records together, `[K]`.

    At least one group does, and at least one does not: where all rates are equal, the first group alone counts as
    below.
    """
    unshifted, sizes = favoured(counts)[:, UNSHIFTED], counts.sum(1)
    rates = unshifted / sizes
    below = (rates < unshifted.sum() / sizes.sum()) & (rates < rates.max())  # by rounding, all may be below the mean
    below[rates.argmin()] = True
    return tuple(below.tolist())


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
