"""Points of the frontier from the probabilities that another library's classifier states for the held-out records.

Decisions are by one threshold for all, or by group, with the search of the frontier's own method that has thresholds by
group (Yang et al. 2024, Algorithm 4) on noisy counts of the validation records. They are no training records, so the
whole epsilon protects them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.datasets import GroupedDataset, Parts
from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import metrics
from fedfair.fairness.reject_option import CELLS, score_counts
from fedfair.mechanisms import histograms
from fedfair.mechanisms.randomness import key, source
from fedfair.moments.front import EVEN, THRESHOLDS
from fedfair.node.front_counts import HELD_OUT
from simulations.reproductions.frontier_choice import of_decisions
from simulations.settings.experiment import Experiment
from strategies.server.population import Population
from strategies.server.releases.threshold_search import ThresholdSearch

FAVOURABLE = 1

Decisions = Mapping[str, Tensor]
"""By part, "valid" and "test": whether each record is decided for, `[n]`."""


class Stated(NamedTuple):
    """What one training of a peer says.

    Attributes:
        setting: Its setting in words.
        scores: By part, "valid" and "test": the stated probability of class 1, `[n]`.
    """

    setting: str
    scores: Mapping[str, Tensor]


class PeerPoint(NamedTuple):
    """One point: its setting in words, the part, and its figures (`frontier_choice.of_decisions`)."""

    setting: str
    split: str
    figures: dict[str, float]


def one_threshold(parts: Parts, stated: Stated) -> Iterator[PeerPoint]:
    """Yield the points of decisions by one threshold: .5, and those of the front of moments, which are free too.

    Args:
        parts: The records.
        stated: What the peer says of them.
    """
    for threshold in (EVEN, *THRESHOLDS):
        words = stated.setting + (f", threshold {threshold:g}" if threshold != EVEN else "")
        yield from _points(parts, words, {split: stated.scores[split] > threshold for split in HELD_OUT})


def by_group(parts: Parts, stated: Stated, thresholded: Experiment) -> Iterator[PeerPoint]:
    """Yield the points of decisions by thresholds by group, searched on noisy counts of the validation records.

    Args:
        parts: The records.
        stated: What the peer says of them.
        thresholded: A run of the frontier's method with thresholds, whose search, theta and epsilon are taken; without
            an epsilon the counts are exact.
    """
    search = _search(parts.valid, stated, thresholded)
    rule = search.choose(thresholded.training.theta).rule
    decided = {split: rule.predict(_logits(stated.scores[split]), getattr(parts, split).group) == FAVOURABLE
               for split in HELD_OUT}
    yield from _points(parts, f"{stated.setting}, theta {thresholded.training.theta:g}", decided)


def _search(valid: GroupedDataset, stated: Stated, thresholded: Experiment) -> ThresholdSearch:
    """Return the search of a run, with the noisy counts of a peer's scores in place of those of its own."""
    population = Population(valid.names, (), valid.group_sizes(), valid.labels)
    search = ThresholdSearch(thresholded.task, thresholded.training, population, "record", None)
    exact = score_counts(stated.scores["valid"].double(), valid.group, len(valid.names))
    noise_key = key(repr(sorted(thresholded.settings().items())), stated.setting)  # of its own, so that none is shared
    search.scores = histograms.add_noise("gaussian", exact, search.multiplier * histograms.sensitivity(CELLS),
                                         source(noise_key, "scores"))
    return search


def _logits(p: Tensor) -> Tensor:
    """Return logits `[n, 2]` of which the second class has a probability of p `[n]`."""
    favourable = torch.logit(p.double())
    return torch.stack([torch.zeros_like(favourable), favourable], 1)


def _points(parts: Parts, setting: str, decided: Decisions) -> Iterator[PeerPoint]:
    """Yield the figures of decisions on either part."""
    for split in HELD_OUT:
        data: GroupedDataset = getattr(parts, split)
        cell = (data.group * 2 + data.y) * 2 + decided[split].long()
        confusion = torch.bincount(cell, minlength=4 * len(data.names)).double().view(-1, 2, 2)
        yield PeerPoint(setting, split, of_decisions(metrics(GroupCounts.of_decisions(confusion), data.names,
                                                             FAVOURABLE)))
