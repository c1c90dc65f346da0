"""Metrics of the probabilities that a model gives, from the sums of `fedfair.fairness.score_sums`.

All are NaN for records without probabilities. A threshold changes decisions, and so none of these.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedfair.fairness.group_counts import Sums


def auc(sums: Sums, favourable: int | None) -> float:
    """Return the area under the ROC curve of the favourable class, from a histogram of the scores."""
    others, own = _by_score(sums)
    below = others.cumsum(0) - others
    return _ratio((own * (below + others / 2)).sum(), own.sum() * others.sum())


def auc_error(sums: Sums, favourable: int | None) -> float:
    """Return the most by which `auc` can differ from that of the scores themselves: half of the pairs in one bin."""
    others, own = _by_score(sums)
    return _ratio((own * others).sum() / 2, own.sum() * others.sum())


def brier_score(sums: Sums, favourable: int | None) -> float:
    """Return the mean squared error of the probabilities, summed over the classes if there are more than two."""
    return _ratio(sums.get("squared_errors", _NOTHING), _levels(sums)[:, 0].sum())


def calibration_error(sums: Sums, favourable: int | None) -> float:
    """Return the expected calibration error over ten equal parts of [0, 1].

    It is that of the favourable class's probability; without one, of the most probable class (Guo et al. 2017).
    """
    records, stated, occurred = _levels(sums).unbind(1)
    return _ratio((stated - occurred).abs().sum(), records.sum())


OF_PROBABILITIES = {"auc": auc, "auc_error": auc_error, "brier_score": brier_score,
                    "calibration_error": calibration_error}
"""The metrics by name."""

_NOTHING = torch.zeros(())


def _levels(sums: Sums) -> Tensor:
    """Return records, sums of probabilities and occurrences by probability."""
    return sums.get("calibration", torch.zeros(1, 3))


def _by_score(sums: Sums) -> tuple[Tensor, Tensor]:
    """Return the numbers of records without and with the favourable label, by their scores' bins."""
    counts = sums.get("scores", torch.zeros(1, 2)).double()
    return counts[:, 0], counts[:, 1]


def _ratio(part: Tensor, whole: Tensor) -> float:
    """Return `part / whole`, NaN if `whole` is 0."""
    return float(part / whole) if float(whole) else math.nan
