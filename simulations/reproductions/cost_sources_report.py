"""Where the cost of privacy comes from, as a page: what was found, each source's part, and every combination."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd
import scipy

from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.panels import bar_chart
from simulations.drawing.scale import Range
from simulations.drawing.table import Table, markdown
from simulations.reproductions.cost_study import NAME, SOURCES, Study, combinations_of
from simulations.reproductions.request import Request
from simulations.statistics.over_seeds import LEVEL, over_seeds

_RATES = "Accuracy of every combination, with its learning rate (edge: the smallest or largest that was tried):"


def estimates(shares: pd.DataFrame) -> dict[str, dict[str, Estimate]]:
    """Return by group, and by source and "together", the mean over seeds of one data set's parts, with its interval."""
    return {str(group): {name: over_seeds(own[name].tolist()) for name in own.columns}
            for group, own in shares.groupby("group", sort=False)}


def picture(dataset: str, shares: pd.DataFrame) -> str:
    """Return bars of each group's cost by source, all on one scale, as SVG."""
    panels = estimates(shares)
    values = [value for bars in panels.values() for value in bars.values()]
    extent = Range(min(0.0, *(value.low for value in values)), max(value.high for value in values))
    return bar_chart(f"{dataset}: accuracy that each group loses, by source", panels, extent)


def findings(study: Study, shares: pd.DataFrame) -> Iterator[str]:
    """Yield for each data set what DP-SGD costs, whom most, and which source makes most of it."""
    for dataset, own in shares.groupby("dataset", sort=False):
        by_group = estimates(own)
        everybody = by_group.pop(ALL)
        paid = max(by_group, key=lambda group: by_group[group]["together"].value)
        spared = min(by_group, key=lambda group: by_group[group]["together"].value)
        most = max(SOURCES, key=lambda source: everybody[source].value)
        gaps, pairs = _between(own, paid, spared), len(by_group) * (len(by_group) - 1) // 2
        yield (f"{dataset}: at epsilon {study.target_epsilon:g} accuracy falls by {_signed(everybody['together'])}, of "
               f"which {most} makes {_signed(everybody[most])}; {paid} loses "
               f"{_signed(over_seeds(gaps['together']))} more than {spared}, {_largest(gaps, pairs)}.")


def _between(shares: pd.DataFrame, paid: str, spared: str) -> dict[str, list[float]]:
    """Return by source how much more one group loses than another, by seed."""
    first, second = shares.xs(paid, level="group"), shares.xs(spared, level="group")
    return {name: (first[name] - second[name]).tolist() for name in shares.columns}


def _largest(gaps: Mapping[str, Sequence[float]], pairs: int) -> str:
    """Say which source makes most of the difference between two groups, if any can be told from 0.

    The two were chosen among `pairs` for their difference, and the source among four: Student's p is that of all looks
    together (Bonferroni).
    """
    looks = len(SOURCES) * pairs
    p = {source: min(1.0, looks * float(scipy.stats.ttest_1samp(gaps[source], 0.0).pvalue)) for source in SOURCES}
    told = [source for source in SOURCES if p[source] < LEVEL]
    if not told:
        return "and no source of that can be told from 0"
    most = max(told, key=lambda source: abs(over_seeds(gaps[source]).value))
    return f"of which {most} makes {_signed(over_seeds(gaps[most]))} (p = {p[most]:.3f})"


def page(study: Study, taken: pd.DataFrame, chosen: Mapping[tuple[str, str], float], shares: pd.DataFrame,
         request: Request, made_with: str) -> str:
    """Return the page; `taken` are the runs with the `chosen` learning rates, `shares` what `parts` returned."""
    lines = [f"# {request.title('Where the cost of privacy comes from')}", "",
             f"`{request.command(NAME, study.seeds)}`", "", made_with, "",
             f"DP-SGD makes {study.steps} steps on batches of {study.batch_size} records at epsilon "
             f"{study.target_epsilon:g}, clip norm {study.clip_norm:g}. Against training without privacy it has four "
             "sources of cost: clipping; noise; sampling, that is batches of "
             f"{study.batch_size} records rather than {study.times_records} times as many (or all); and steps, that is "
             f"{study.steps} rather than {study.times_steps} times as many. All 16 combinations were trained to the "
             "end, each with the learning rate of the highest validation accuracy. A part is a Shapley value: what a "
             "source adds to the cost, averaged over all orders. Means of "
             f"{study.seeds} seeds, ± half a 95 % t-interval; negative parts are gains.", "",
             *request.left_out(study.text), *(f"- {line}" for line in findings(study, shares)), ""]
    for dataset, own in shares.groupby("dataset", sort=False):
        lines += [f"## {dataset}", "", f"![Accuracy that each group of {dataset} loses, by source]({dataset}.svg)", "",
                  markdown(_table_of_parts(own)), "", _RATES, "",
                  markdown(_table_of_combinations(taken[taken["dataset"] == dataset], chosen, study.learning_rates)),
                  ""]
    return "\n".join(lines)


def _table_of_parts(shares: pd.DataFrame) -> Table:
    """Return one data set's parts: a row for each source, a column for each group."""
    by_group = estimates(shares)
    rows = [(name, *(_signed(values[name]) for values in by_group.values())) for name in shares.columns]
    return Table(columns=("source", *by_group), rows=rows)


def _table_of_combinations(taken: pd.DataFrame, chosen: Mapping[tuple[str, str], float], rates: Sequence[float]
                           ) -> Table:
    """Return one data set's accuracies: a row for each combination, a column for each group.

    A learning rate at an edge of the `rates` that were tried is marked: a better one may lie beyond.
    """
    accuracies = taken.pivot_table(index="combination", columns="group", values="accuracy", sort=False,
                                   aggfunc=lambda values: _mean(values.tolist()))
    dataset = str(taken["dataset"].iloc[0])
    edges = {min(rates), max(rates)}
    rows = [(name, f"{chosen[dataset, name]:g}{' (edge)' * (chosen[dataset, name] in edges)}",
             *map(str, accuracies.loc[name])) for name in combinations_of(SOURCES)]
    return Table(columns=("combination", "learning rate", *map(str, accuracies.columns)), rows=rows)


def _signed(estimate: Estimate) -> str:
    """Return a difference with half its interval."""
    return f"{estimate.value:+.4f} ± {(estimate.high - estimate.low) / 2:.4f}"


def _mean(values: list[float]) -> str:
    """Return a mean with half its interval."""
    found = over_seeds(values)
    return f"{found.value:.4f} ± {(found.high - found.low) / 2:.4f}"
