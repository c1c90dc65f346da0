"""Sums over the probabilities that a model gives, by group: enough for AUC, Brier score and calibration.

The area under the ROC curve needs the order of all scores, which does not add up over nodes. A histogram does: its bins
are equal steps of asinh(log-odds of the favourable class), 0.01 wide where the odds are even and 1 % of the log-odds
elsewhere. Scores within one bin count as ties.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

BINS = 1024
"""Bins of the histogram of scores."""

MOST_CLASSES = 256
"""Classes up to which labels are counted with predictions."""

LEVELS = 10
"""Equal parts of [0, 1] by which probabilities are compared with what occurs."""

_END = math.asinh(100.0)  # log-odds beyond 100 are in the last bins: e^-100 is 0 in float32


class Scores(NamedTuple):
    """What a model says of n records.

    Attributes:
        output: Logits, `[n, classes]`.
        favourable: Favourable class; None for none.
    """

    output: Tensor
    favourable: int | None


def favourable_of(favourable: int | None, classes: int) -> int | None:
    """Return the favourable class: of two classes by default 1."""
    return 1 if favourable is None and classes == 2 else favourable


def score_zeros(groups: int) -> dict[str, Tensor]:
    """Return the sums over no record, by name."""
    scores = torch.zeros(groups, BINS, 2)  # the largest of all sums; float32 counts 16 million records in a bin exactly
    return {"scores": scores, "calibration": torch.zeros(groups, LEVELS, 3, dtype=torch.float64),
            "squared_errors": torch.zeros(groups, dtype=torch.float64)}


def score_sums(scores: Scores, y: Tensor, group: Tensor, groups: int) -> dict[str, Tensor]:
    """Return the sums over n records, by name (see `fedfair.fairness.group_counts.GroupCounts`).

    Without a favourable class, calibration is that of the most probable class (Guo et al. 2017), and no scores are
    counted.

    Args:
        scores: The model's output.
        y: Labels, `[n]`.
        group: Group numbers, `[n]`.
        groups: Number of groups K.
    """
    logits, y, group = (value.detach().cpu() for value in (scores.output, y, group))
    probabilities = logits.double().softmax(1)
    sums = score_zeros(groups)
    own = probabilities.gather(1, y[:, None]).flatten()
    squared = probabilities.square().sum(1) - own.square() + (1 - own).square()
    halved = squared / 2 if logits.shape[1] == 2 else squared  # (p - y)^2 of two classes, as Brier's score is known
    sums["squared_errors"].index_add_(0, group, halved)
    named = favourable_of(scores.favourable, logits.shape[1])
    if named is None:
        stated, chosen = probabilities.max(1)
        occurred = chosen == y
    else:
        stated, occurred = probabilities[:, named], y == named
        cell = (group * BINS + bins(log_odds(logits.double(), named))) * 2 + occurred
        sums["scores"] += torch.bincount(cell, minlength=groups * BINS * 2).view(groups, BINS, 2)
    level = (stated.nan_to_num() * LEVELS).long().clamp(0, LEVELS - 1)
    values = torch.stack([torch.ones_like(stated), stated, occurred.double()], 1)
    sums["calibration"].view(-1, 3).index_add_(0, group * LEVELS + level, values)
    return sums


def log_odds(logits: Tensor, favourable: int) -> Tensor:
    """Return the log-odds of the favourable class against all others, `[n]`."""
    rest = torch.cat([logits[:, :favourable], logits[:, favourable + 1:]], 1)
    return logits[:, favourable] - rest.logsumexp(1)


def bins(odds: Tensor) -> Tensor:
    """Return the bin of each of n log-odds, `[n]`."""
    place = (odds.asinh() + _END) / (2 * _END) * BINS
    return place.nan_to_num(BINS / 2).long().clamp(0, BINS - 1)


def middles() -> Tensor:
    """Return the probability that stands for each bin, `[BINS]`."""
    at = (torch.arange(BINS, dtype=torch.float64) + 0.5) / BINS * 2 * _END - _END
    return torch.sigmoid(at.sinh())
