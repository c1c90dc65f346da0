"""Private preprocessing: one noisy release of all columns, from which ranges and lists of categories follow.

Numbers: noisy prefix sums over a public grid (`fedfair.mechanisms.histograms`) give the range that holds all but a few
records; beyond it numbers count as its ends. Categories: those whose noisy count exceeds a threshold that a category of
one record alone exceeds with a small probability, which is a part of delta (Korolova et al. 2009; with Gaussian noise,
Desfontaines, Voss, Gipson and Mandayam 2022). All others are "other", also in new rows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple, cast

import torch
from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid
from torch import Tensor

from fedfair.accounting import multiplier_of
from fedfair.accounting.events import Preprocessed, Unit
from fedfair.datasets.features.encoding import OTHER
from fedfair.datasets.features.features import Range, Standard
from fedfair.datasets.schema import Listed
from fedfair.mechanisms import histograms
from fedfair.mechanisms.histograms import bin_ends
from fedfair.mechanisms.noise import Trust, client_share, server_share, sum_share
from fedfair.mechanisms.randomness import source
from fedfair.node.column_counts import COUNTS, NOISE, TEXTS, keep_frequent, send_column_counts
from fedfair.node.node import ClientError
from fedfair.protocol.task import Task
from strategies.server.budget_shares import CATEGORIES_SHARE, LISTED_SHARE, PREPROCESSING_SHARE
from strategies.server.population import Population
from strategies.server.replies.requests import added, ask
from strategies.server.training import Training

log = logging.getLogger(__name__)
_DEVIATIONS = 4.0  # of the noise, which a range leaves out at both ends


class Columns(NamedTuple):
    """Columns that nothing is publicly known of: of numbers, and of categories."""

    numbers: tuple[str, ...]
    categories: tuple[str, ...]


def unknown_columns(task: Task) -> Columns:
    """Return the columns whose range or list preprocessing is to learn; none unless it is private."""
    if task.prepares != "private":
        return Columns((), ())
    known = task.known_columns
    left = [feature for feature in task.data().train.encoding.features if feature.column not in known]
    return Columns(*(tuple(dict.fromkeys(feature.column for feature in left if (feature.category is None) == number))
                     for number in (True, False)))


def planned(task: Task, training: Training) -> Preprocessed | None:
    """Return what the release will be charged, known before it is made; None if there is nothing to learn.

    Args:
        task: The run's data and settings.
        training: Settings of the budget.

    Raises:
        ValueError: If no part of a budget is set aside for it.
    """
    columns = unknown_columns(task)
    if not any(columns):
        return None
    given = training.preprocessing_epsilon
    if given is None and training.target_epsilon is None:
        raise ValueError("preprocessing is private, and its release costs a part of the budget: give target_epsilon, "
                         "of which it takes a quarter, or preprocessing_epsilon")
    preprocessing_epsilon = given if given is not None else PREPROCESSING_SHARE * cast(float, training.target_epsilon)
    delta = CATEGORIES_SHARE * training.delta if columns.categories else 0.0
    return Preprocessed(multiplier_of(preprocessing_epsilon, training.delta - delta, training.accountant), delta)


def learn_columns(task: Task, training: Training, population: Population, grid: Grid, spent: Preprocessed, unit: Unit,
                  noise_key: str | None) -> Task:
    """Return the task with the ranges and lists that a noisy release of all nodes gives.

    Args:
        task: A task with columns that nothing is known of.
        training: Settings of noise and trust.
        population: Public numbers of records.
        grid: The nodes.
        spent: What the release is charged.
        unit: What is protected.
        noise_key: What the noise follows from, or None if it comes from the operating system.

    Raises:
        ValueError: If the noise would hide every range.
        fedfair.node.node.ClientError: If a node fails, or sends what cannot be.
    """
    columns, trust = unknown_columns(task), training.trust
    deviation = spent.multiplier * math.sqrt(len(columns.numbers) + len(columns.categories))
    threshold = _threshold(deviation, spent.delta, len(columns.categories))
    public = _protected(task, population, unit)
    margin = _margin(columns, task, training, len(population.sizes), deviation, unit, public)
    replies = ask(send_column_counts, grid, task, training, population, training.dropouts,
                  numbers=list(columns.numbers), categories=list(columns.categories), unit=unit, deviation=deviation,
                  share=client_share(trust, len(population.sizes) - training.dropouts),
                  threshold=0.0 if trust is Trust.CENTRAL else threshold, noise=training.noise,
                  key=noise_key or "")
    like = {"numbers": torch.empty(len(columns.numbers), histograms.CELLS, dtype=torch.float64)}
    counts = histograms.add_noise(
        training.noise, added(replies, "sums", like)["numbers"],
        server_share(trust) * deviation * histograms.sensitivity(histograms.CELLS), source(noise_key, NOISE))
    noise = histograms.largest_deviation(histograms.CELLS, deviation * sum_share(
        trust, len(population.sizes) - training.dropouts))
    below = dict(zip(columns.numbers, counts.cumsum(1), strict=True))
    totals = {column: _total(row, task, public) for column, row in below.items()}
    ranges = [Range(column, *_range(row, totals[column], margin)) for column, row in below.items()]
    draws, lists = source(noise_key, TEXTS), []
    for column in columns.categories:
        found = _together(replies, column)
        kept = keep_frequent(found, deviation, threshold, training.noise, draws) if trust is Trust.CENTRAL else found
        lists.append(Listed(column, (*sorted(kept.keys() - {OTHER}), OTHER)))
    return task.model_copy(update={"ranges": (*(task.ranges or ()), *ranges),
                                   "categories": (*(task.categories or ()), *lists),
                                   **_features_of(task, ranges, below, noise)})


def _features_of(task: Task, ranges: Sequence[Range], below: Mapping[str, Tensor], noise: float) -> dict[str, Any]:
    """Return what else the features need to know of each number: ends between bins, or mean and deviation.

    Both follow from the same noisy counts, and cost nothing more.
    """
    if task.feature_map == "binned":
        edges = {name: bin_ends(below[name], task.bins, noise) for name, _, _ in ranges}
        return {"edges": (*edges.items(), *(task.edges or ()))}
    if task.feature_map == "standardised":
        made = [Standard(name, *histograms.mean_and_deviation(below[name], (low, high)))
                for name, low, high in ranges]
        return {"scalings": (*made, *(task.scalings or ()))}
    return {}


def _protected(task: Task, population: Population, unit: Unit) -> int:
    """Return the public number of records, or of participants."""
    return (task.trained_rows() or population.records) if unit == "record" else len(population.sizes)


def _total(below: Tensor, task: Task, public: int) -> int:
    """Return the number of values of a column: of a user's table, of which any may be missing, by its noisy counts."""
    return max(1, round(float(below[-1]))) if task.is_own else public


def _threshold(deviation: float, delta: float, columns: int) -> float:
    """Return the noisy count that the only record of a category exceeds in one of the columns with little probability.

    That is `LISTED_SHARE` of delta.
    """
    return 1 + deviation * -NormalDist().inv_cdf(LISTED_SHARE * delta / columns) if columns else 0.0


def _margin(columns: Columns, task: Task, training: Training, clients: int, deviation: float, unit: Unit, total: int
            ) -> float:
    """Return how many records a range leaves out at each end.

    Bins have no outer ends, so their range may leave out half a bin. Raises `ValueError` if too many are left out.
    """
    clients -= training.dropouts
    noise = deviation * sum_share(training.trust, clients)
    margin = _DEVIATIONS * histograms.largest_deviation(histograms.CELLS, noise)
    if task.feature_map == "binned":
        most = total / (2 * task.bins)
        if columns.numbers and margin > most:
            log.warning("the noise of private preprocessing is large beside %s %ss: bins of numbers will be crude; "
                        "give their public ranges, or more of the budget by preprocessing_epsilon", f"{total:,}", unit)
        return min(margin, most)
    if columns.numbers and 4 * margin > total:
        raise ValueError(f"preprocessing is private, but its noise would hide the ranges of "
                         f"{', '.join(columns.numbers)} among {total:,} {unit}s: give their public ranges, or more of "
                         "the budget by preprocessing_epsilon")
    return margin


def _range(below: Tensor, total: int, margin: float) -> tuple[float, float]:
    """Return the range that holds all but about `margin` records at each end, from noisy counts up to each cell."""
    first = int((below >= margin).nonzero()[0]) if bool((below >= margin).any()) else histograms.CELLS - 1
    beyond = (below >= total - margin).nonzero()
    last = max(first, int(beyond[0]) if len(beyond) else histograms.CELLS - 1)
    return histograms.ends(first)[0], histograms.ends(last)[1]


def _together(replies: list[Message], column: str) -> dict[str, float]:
    """Return the counts of a column's categories over all nodes; raise `ClientError` for what is no such list."""
    total: dict[str, float] = {}
    for reply in replies:
        names = reply.content.config_records.get(TEXTS, ConfigRecord()).get(column)
        counts = reply.content.config_records.get(COUNTS, ConfigRecord()).get(column)
        if not (isinstance(names, list) and isinstance(counts, list) and len(names) == len(counts)
                and all(isinstance(name, str) for name in names)
                and all(isinstance(count, float) and 0 < count < math.inf for count in counts)):
            raise ClientError(f"node {reply.metadata.src_node_id} sent no counts of column {column!r}, which it was "
                              "asked for: do all nodes run the same program?")
        for name, count in zip(names, counts, strict=True):
            total[str(name)] = total.get(str(name), 0.0) + cast(float, count)
    return total
