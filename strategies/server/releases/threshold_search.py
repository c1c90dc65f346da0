"""The server's search for a threshold after the training: one exchange, then post-processing."""

from __future__ import annotations

import logging
import math
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from torch import Tensor

from fedfair.accounting import Ledger
from fedfair.accounting.events import Unit
from fedfair.fairness.reject_option import CELLS, RejectOption, below_average, favoured
from fedfair.fairness.threshold_search import ROUNDING, by_group, confident, counted, toc
from fedfair.mechanisms import histograms
from fedfair.mechanisms.noise import client_share, server_share
from fedfair.mechanisms.randomness import source
from fedfair.node import exchanges
from fedfair.plugins.registry import unknown
from fedfair.protocol.task import Task
from strategies.server.calibration import search_charge, search_noise
from strategies.server.population import Population
from strategies.server.replies.requests import added, ask, present
from strategies.server.training import Training

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Threshold:
    """The decision rule that a run ends with.

    `parity` is the demographic parity that the search measured with it, or its bound (with noise, if the search was
    private). `confidence` is the probability with which parity is at most theta on unseen data, or None if nothing is
    promised.
    """

    rule: RejectOption
    parity: float | None = None
    confidence: float | None = None

    def to_dict(self, groups: tuple[str, ...], labels: tuple[str, ...]) -> dict[str, Any]:
        """Return the rule by the names of the groups and of the classes, with parity and confidence."""
        return {"gammas": dict(zip(groups, self.rule.gammas, strict=True)),
                "deprived": [name for name, up in zip(groups, self.rule.deprived, strict=True) if up],
                "favourable": labels[self.rule.favourable], "demographic_parity_found": self.parity,
                "confidence": self.confidence}


class ThresholdSearch:
    """Asks for the score counts of the validation records, with noise if the search is private, and chooses.

    `scores` `[K, 2 G]` holds what was released; any number of choices from it costs nothing more. It protects one
    validation record, or a participant with all its validation records: then the noise is for the largest number of
    them that a client has. Raises `ValueError` if the settings do not fit the population.
    """

    def __init__(self, task: Task, training: Training, population: Population, protects: Unit,
                 noise_key: str | None) -> None:
        _check(training, population)
        self.task, self.training, self.population, self._key = task, training, population, noise_key
        self._moved = population.most_valid if protects == "participant" else 1  # the most counts that one adds to
        named = training.favourable_class(population.labels)
        self.favourable = 1 if named is None else named
        self.multiplier = search_noise(training)
        self.charged = search_charge(training, protects)
        self.scores: Tensor | None = None
        self._added_multiplier = 0.0  # of the noise that the scores carry, in units of what one record moves

    def bare(self, task: Task) -> ThresholdSearch:
        """Return what a person may keep of the search: neither numbers of records nor the key of its noise.

        Args:
            task: What takes the place of its task.
        """
        known, made = self.population, copy(self)
        made.task, made._key = task, None
        made.population = Population(known.names, (), (), known.labels)
        return made

    def ask(self, arrays: ArrayRecord, grid: Grid, ledger: Ledger) -> None:
        """Get the counts from all clients, with the noise of the trust model, and enter the release into the ledger."""
        training = self.training
        if not training.searches:
            return
        server, relative = server_share(training.trust), self.multiplier * self._moved
        full = relative * histograms.sensitivity(CELLS)
        clients, dropouts = len(self.population.sizes), training.dropouts
        share = client_share(training.trust, clients - dropouts)
        answered = ask(exchanges.send_scores, grid, self.task, training, self.population, dropouts,
                       weights=arrays, favourable=self.favourable, deviation=share * full, noise=training.noise,
                       key=self._key or "")
        like = {"scores": torch.empty(len(self.population.names), CELLS, dtype=torch.float64)}
        self.scores = histograms.add_noise(training.noise, added(answered, "sums", like)["scores"], server * full,
                                            source(self._key, "scores"))
        self._added_multiplier = relative * math.hypot(server, share * math.sqrt(len(present(answered))))
        ledger.record_held_out("valid", self.multiplier)
        if self.charged and self.multiplier:
            ledger.expose("the largest number of validation records of a participant",
                          "the noise of the search for a threshold is in proportion to it")

    def choose(self, theta: float) -> Threshold:
        """Return the threshold for one theta, from what was released.

        If no record of some group was counted, warn, and return a threshold that changes no decision.
        """
        training, names = self.training, self.population.names
        lost = [] if self.scores is None else [name for name, size in zip(
            names, self.scores.sum(1).tolist(), strict=True) if size <= 0]
        if lost:
            log.warning("no validation record of group %s was counted, since its clients are lost, or by noise: the "
                        "run ends without a threshold", ", ".join(map(repr, lost)))
            return Threshold(RejectOption((0.5,) * len(names), (False,) * len(names), self.favourable))
        if training.deprived is not None:
            deprived = tuple(name in training.deprived for name in names)
        elif self.scores is not None:
            deprived = below_average(self.scores)
        if training.gamma is not None:
            return Threshold(RejectOption((training.gamma,) * len(names), deprived, self.favourable))
        assert self.scores is not None
        one_gamma, confidence = training.threshold != "by-group", training.threshold_confidence
        rates = (counted(self.scores) if confidence is None
                 else confident(self.scores, confidence, one_gamma, self._added_multiplier))
        if one_gamma:
            chosen = toc(rates, deprived, theta)
        else:
            chosen = by_group(rates, favoured(self.scores), theta)
            deprived = tuple(shift > 0 for shift in chosen.shifts)
        rule = RejectOption.shifted(chosen.shifts, deprived, self.favourable)
        return Threshold(rule, chosen.parity, confidence if chosen.parity <= theta + ROUNDING else None)


def _check(training: Training, population: Population) -> None:
    """Raise `ValueError` if the run's groups and classes allow no threshold of these settings."""
    names, classes = population.names, population.classes
    if training.threshold == "none":
        return
    if len(names) < 2:
        raise ValueError(f"threshold is {training.threshold!r}, but there is only the group {names[0]!r}: a threshold "
                         "compares at least two; leave it out")
    if classes > 2 and training.favourable is None:
        raise ValueError(f"threshold is {training.threshold!r}, but there are {classes} classes: say which of "
                         f"0..{classes - 1} is favourable, for example favourable=1, or leave the threshold out")
    for name in training.deprived or ():
        if name not in names:
            raise unknown("deprived group", name, names)
    if set(training.deprived or ()) == set(names):
        raise ValueError("every group is named as deprived: leave at least one out")
    absent = [name for name, size in zip(names, population.valid, strict=True) if not size]
    if training.searches and absent:
        raise ValueError(f"threshold is looked for in the validation part, which has no record of group "
                         f"{', '.join(map(repr, absent))}: take a larger share for it in split")
