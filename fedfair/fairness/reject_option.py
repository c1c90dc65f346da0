"""Reject-option classification: who is close to the decision boundary is decided by group.

Sources: Kamiran, Karim and Zhang 2012; Yang et al. 2024, Algorithms 3 and 4. Beyond them: any number of groups and a
gamma for each, and more than two classes, of which one is favourable.

A group's decisions at all gammas of a grid are nested, so its records count only through how they are ordered. With G
gammas, a record falls into one of 2 G cells, from the surest favourable one to the surest other one, and a group that
is *shifted* by s in -(G - 1) .. G - 1 gives the favourable class to all cells before the (G + s)-th: a deprived group
with the i-th gamma (from 0) is shifted by i, a privileged one by -i, and 0 leaves the decisions of the model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

GAMMAS = torch.linspace(0.5, 1, 100, dtype=torch.float64)
"""The grid of Yang et al. 2024, Algorithm 4."""

CELLS = 2 * len(GAMMAS)
"""How many score cells there are for each group."""

UNSHIFTED = len(GAMMAS) - 1
"""The place of shift 0 where shifts are numbered from 0, as in `favoured`."""


@dataclass(frozen=True)
class RejectOption:
    """The rule, by group: a record whose confidence max(p, 1 - p) is below its group's gamma gets the `favourable`
    class if the group is deprived, and the best of the others if not; all other records what the model says.

    `gammas` and `deprived` have one entry for each group. Two groups with one gamma are Algorithm 3 of Yang et al.
    """

    gammas: tuple[float, ...]
    deprived: tuple[bool, ...]
    favourable: int = 1

    @staticmethod
    def shifted(shifts: Sequence[int], deprived: Sequence[bool], favourable: int) -> RejectOption:
        """The rule that shifts each group so far: the deprived ones up, the others down."""
        return RejectOption(tuple(float(GAMMAS[abs(shift)]) for shift in shifts), tuple(deprived), favourable)

    def predict(self, output: Tensor, group: Tensor) -> Tensor:
        """Classes `[n]` from a model's output `[n, classes]` and group numbers `[n]`."""
        p, other = score(output, self.favourable)
        gamma = torch.tensor(self.gammas, dtype=torch.float64, device=p.device)[group]
        deprived = torch.tensor(self.deprived, device=p.device)[group]
        favoured = torch.where(torch.maximum(p, 1 - p) < gamma, deprived, p >= 0.5)
        return torch.where(favoured, self.favourable, other)

    def to_json(self) -> str:
        """The rule as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> RejectOption:
        """The rule that `to_json` wrote."""
        fields = json.loads(text)
        return RejectOption(tuple(fields["gammas"]), tuple(fields["deprived"]), fields["favourable"])


def score(output: Tensor, favourable: int) -> tuple[Tensor, Tensor]:
    """How probable the favourable class is against its strongest rival, p `[n]`, and that rival `[n]`.

    p = P(favourable) / (P(favourable) + P(rival)) for logits `[n, classes]`: with two classes the probability itself;
    with more, the favourable class against the rest such that p >= 0.5 where the model chooses it.
    """
    logits = output.double()
    rest = logits.clone()
    rest[:, favourable] = -torch.inf
    strongest, rival = rest.max(1)
    return torch.sigmoid(logits[:, favourable] - strongest), rival


def score_counts(p: Tensor, group: Tensor, groups: int) -> Tensor:
    """How many records, with scores p `[n]`, fall into each group's cells: `[K, 2 G]`; each record is in one."""
    reached = torch.searchsorted(GAMMAS.to(p.device), torch.maximum(p, 1 - p), right=True)
    cell = torch.where(p >= 0.5, len(GAMMAS) - reached, len(GAMMAS) - 1 + reached)
    return torch.bincount(group * CELLS + cell, minlength=groups * CELLS).view(groups, CELLS).double().cpu()


def favoured(counts: Tensor) -> Tensor:
    """How many records of each group get the favourable class when it is shifted, for every shift: `[K, 2 G - 1]`.

    Noisy counts are made to grow with the shift, as exact ones do: post-processing.
    """
    return counts.cumsum(1).cummax(1).values[:, :-1]


def below_average(counts: Tensor) -> tuple[bool, ...]:
    """Which groups get the favourable class less often than all records together: of two groups, the lower one.

    One is always among them, and one is not: where all rates are alike, the first group alone.
    """
    unshifted, sizes = favoured(counts)[:, UNSHIFTED], counts.sum(1)
    rates = unshifted / sizes
    below = (rates < unshifted.sum() / sizes.sum()) & (rates < rates.max())  # by rounding, all may be below the mean
    below[rates.argmin()] = True
    return tuple(below.tolist())
