"""Figures that are released with noise: how a run's model does, and classifiers of its front.

Every held-out part is a release of its own, about records that trained nothing: a record is in one part, so it is
charged for one of them. Where nothing is held out they are of training records, each decided by a classifier that was
trained without it (`fedfair.moments.leave_one_out`), and training records are charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from torch import Tensor

from fedfair.accounting import Ledger, multiplier_of
from fedfair.accounting.events import LEFT_OUT, Unit
from fedfair.fairness.decision_counts import CONFUSION, Deciding, factors
from fedfair.fairness.intervals import places_of
from fedfair.fairness.metrics import computed
from fedfair.fairness.noisy_figures import (
    CurvePoint,
    CutOffFigure,
    Figure,
    NoisyCounts,
    constant_counts,
    made_alike,
)
from fedfair.fairness.reject_option import RejectOption
from fedfair.fairness.site_figures import SiteCounts, SiteFigure
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.noise import Trust, client_share, most_records, no_room, server_share
from fedfair.mechanisms.randomness import source
from fedfair.moments.front import Front
from fedfair.moments.leave_one_out import LeftOut
from fedfair.node.left_out_counts import LEFT, send_left_out_counts, send_left_out_front_counts
from fedfair.node.private_counts import (
    FRONT,
    MODEL,
    SITES,
    send_private_counts,
    send_private_front_counts,
    with_table_noise,
)
from fedfair.protocol.exchange import Exchange
from fedfair.protocol.task import Task
from strategies.server.budget_shares import FRONT_SHARES, LEFT_OUT_SHARES, SITES_SHARE, SPLITS, Split, with_share
from strategies.server.population import Population
from strategies.server.replies.requests import added, ask, present
from strategies.server.training import Training


class Figures(NamedTuple):
    """What was released of the run's model, by part.

    Attributes:
        rows: Figures with their intervals.
        curves: Points of calibration curves.
        sites: Figures by site; none without sites.
        cut_offs: Figures at other cut-offs, of two classes.
    """

    rows: list[tuple[Split, Figure]]
    curves: list[tuple[Split, CurvePoint]]
    sites: list[tuple[Split, SiteFigure]]
    cut_offs: list[tuple[Split, CutOffFigure]]


def _largest_part(task: Task, population: Population) -> int:
    """Return about how many records the largest part has whose decisions are counted, by the shares of the parts."""
    share = max(task.split[1:]) if task.holds_out else task.split[0]
    return round(population.records * share / task.split[0])


class PrivateFigures:
    """Asks for counts of decisions, with noise, and enters them into the ledger.

    The budget of a part may be split (`budget_shares`).

    Args:
        task: The run's data.
        training: Settings of the budget, of noise and of trust.
        population: Names of groups and classes, and the clients.
        protects: What the run protects.
        noise_key: What noise follows from, or None if it comes from the operating system.

    Raises:
        ValueError: If participants are protected, no epsilon is given, gaps are asked for among other groups, or there
            are more records than discrete noise has room for.
    """

    def __init__(self, task: Task, training: Training, population: Population, protects: Unit, noise_key: str | None
                 ) -> None:
        if protects == "participant":
            raise ValueError('figures is "private", which protects records, but this run protects participants, who '
                             'have many of them: take figures = "held-out" or "exact"')
        figures_epsilon = training.figures_epsilon or training.target_epsilon
        if figures_epsilon is None:
            raise ValueError('figures is "private", and they cost held-out records an epsilon: give figures_epsilon, '
                             "or target_epsilon, which they then have as well")
        self._among = training.gap_among or ()
        places_of(self._among, population.names)  # before anything is released
        self.multiplier = multiplier_of(figures_epsilon, training.delta, training.accountant)
        rows, most = _largest_part(task, population), int(most_records(self.multiplier))
        if training.noise == "discrete" and rows > most:
            raise no_room(rows, most)
        self.released = Figures([], [], [], [])
        self.parts: Sequence[Split] = SPLITS if task.holds_out else (LEFT_OUT,)
        self.shares_of_front = FRONT_SHARES if task.holds_out else LEFT_OUT_SHARES
        self._task, self._training, self._population, self._key = task, training, population, noise_key

    def model(self, grid: Grid, arrays: ArrayRecord, ledger: Ledger, rule: RejectOption | None, split: Split,
              share: float) -> NoisyCounts:
        """Release how the model does on a held-out part; keep its figures.

        Args:
            grid: The nodes.
            arrays: Weights of the model.
            ledger: Where the release is entered.
            rule: Rule of decision by group, or None.
            split: The part.
            share: Share of the part's budget.
        """
        ask = partial(self._ask, send_private_counts, grid, ledger, split, weights=arrays,
                      threshold=rule.to_json() if rule else "")
        return self._kept(ask, split, share)

    def left_out(self, grid: Grid, left: LeftOut, ledger: Ledger, share: float) -> NoisyCounts:
        """Release how the model does on training records, had they not trained it; keep its figures.

        Args:
            grid: The nodes.
            left: How it decides them.
            ledger: Where the release is entered.
            share: Share of the budget for figures.
        """
        ask = partial(self._ask, send_left_out_counts, grid, ledger, LEFT_OUT, tensors={LEFT: left.tensors()})
        return self._kept(ask, LEFT_OUT, share)

    def _kept(self, ask: Callable[..., tuple[Gradients, float]], split: Split, share: float) -> NoisyCounts:
        """Release counts of the model's decisions, by site too where there are sites, and keep their figures."""
        sites = self._task.data().train.sites if self._task.site else ()
        apart = SITES_SHARE * share if sites else 0.0
        counts = self._counts(ask, share - apart)
        self.released.rows.extend((split, figure) for figure in counts.figures())
        self.released.curves.extend((split, point) for point in counts.curve())
        self.released.cut_offs.extend((split, figure) for figure in counts.cut_offs())
        if sites:
            by_site = SiteCounts(self._counts(ask, apart, sites), sites, counts.names, self._among)
            self.released.sites.extend((split, figure) for figure in by_site.figures())
        return counts

    def _counts(self, ask: Callable[..., tuple[Gradients, float]], share: float, sites: tuple[str, ...] = ()
                ) -> NoisyCounts:
        """Release counts of the model's decisions, or of those by site and group."""
        groups, favourable = self._population.names, self._favourable
        like = Deciding(len(groups), self._population.classes, favourable, sites=len(sites) or 1).zeros
        tables, deviation = ask(share, like, 1, SITES if sites else MODEL, **{
            "favourable": -1 if favourable is None else favourable, "by-site": bool(sites)})
        noise = {name: deviation * factor for name, factor in factors(tables).items()}
        at_sites = tuple(f"{group} at {site}" for site in sites for group in groups)
        return NoisyCounts(tables, noise, favourable, at_sites or groups, among=() if sites else self._among)

    def front(self, grid: Grid, made: Front, ledger: Ledger, split: Split, share: float) -> list[NoisyCounts]:
        """Release how linear classifiers do on a part.

        All are about the same records, and tell together how many have each label. So those that decide alike for
        every record need not be asked for, and there is less noise among fewer tables.

        Args:
            grid: The nodes.
            made: The classifiers.
            ledger: Where the release is entered.
            split: The part.
            share: Share of the part's budget.
        """
        names, classes, weights = self._population.names, self._population.classes, made.weights
        alike = (weights[:, :-1] == weights[:, :-1, :1]).all(2).all(1)
        asked = torch.ones_like(alike) if alike.all() else ~alike
        like = {CONFUSION: torch.zeros(int(asked.sum()), len(names), classes, classes, dtype=torch.float64)}
        exchange, tensors = send_private_front_counts, {"front": {"weights": weights[asked]}}
        if made.left_out is not None:
            exchange, tensors = send_left_out_front_counts, {LEFT: made.left_out.of_points(asked).tensors()}
        tables, deviation = self._ask(exchange, grid, ledger, split, share, like, int(asked.sum()), FRONT,
                                      tensors=tensors)
        counts, labels = made_alike(tables[CONFUSION])
        found = [NoisyCounts({CONFUSION: table}, {CONFUSION: deviation}, self._favourable, names, alike=len(counts),
                             among=self._among) for table in counts]
        spread = deviation * math.sqrt(classes / len(counts))
        counted = iter(found)
        return [next(counted) if differs else constant_counts(
            labels, spread, self._favourable, names, int(last), self._among)
                for differs, last in zip(asked, weights[:, -1].argmax(1), strict=True)]

    def charge(self, ledger: Ledger) -> None:
        """Enter into a ledger what the figures of a whole run release."""
        for split in self.parts:
            ledger.record_held_out(split, self.multiplier)

    @property
    def _trust(self) -> Trust:
        """Who adds noise to counts: under secure aggregation each client adds all of it, since no mask hides counts."""
        return Trust.LOCAL if self._training.secure_aggregation else self._training.trust

    @property
    def _favourable(self) -> int | None:
        """The number of the favourable class, or None."""
        return self._training.favourable_class(self._population.labels)

    def _ask(self, exchange: Exchange, grid: Grid, ledger: Ledger, split: Split, share: float,
             like: Mapping[str, Tensor], tables: int, purpose: str, **parts: Any) -> tuple[Gradients, float]:
        """Release tables of counts of which a record is in one cell each; return them, and the noise's deviation."""
        training, trust = self._training, self._trust
        multiplier = with_share(self.multiplier, share)
        full = multiplier * math.sqrt(tables)
        clients = client_share(trust, len(self._population.sizes) - training.dropouts)
        replies = ask(exchange, grid, self._task, training, self._population, training.dropouts, split=split,
                      deviation=clients * full, noise=training.noise, key=self._key or "", **parts)
        summed, server = added(replies, "sums", like), server_share(trust)
        noisy = with_table_noise(training.noise, summed, server * full, source(self._key, f"{purpose} {split}"))
        ledger.record_held_out(split, multiplier)
        return noisy, full * math.hypot(server, clients * math.sqrt(len(present(replies))))


def rows_of(counts: NoisyCounts) -> list[tuple[str, str, float]]:
    """Return figures as a run's metrics have them: group, metric, value; those that are not released are NaN."""
    figures = counts.figures()
    known = {(figure.group, figure.metric) for figure in figures}
    groups = dict.fromkeys(figure.group for figure in figures)
    absent = [(group, metric, math.nan) for group in groups for metric in computed() if (group, metric) not in known]
    return [*((figure.group, figure.metric, figure.value) for figure in figures), *absent]
