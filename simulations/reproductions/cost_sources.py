"""Where the cost of privacy comes from, and who pays: `fedfair reproduce cost-sources`.

DP-SGD differs from training without privacy in four ways. Gradients are clipped, noise is added, batches are small
samples, since sampling makes the noise cheaper, and steps are few, since each is charged. Here every combination of
the four trains to its end, tuned over the same learning rates. Without noise or clipping the rest stays: the same
batches, and the same noise on the mean gradient whatever the size of a batch.

A source's part of a group's cost is its Shapley value (Shapley 1953): what it adds to the cost, averaged over all
orders in which the four can come. So the parts sum to the whole cost, and a part that two make only together is halved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import scipy

from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.figure import Range
from simulations.drawing.svg import bar_chart
from simulations.drawing.table import Table, markdown
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import OnRound
from simulations.reproductions.cost_study import (
    CONFIG,
    NAME,
    NONE,
    SOURCES,
    Entry,
    Study,
    combinations_of,
    load,
    named,
    plan,
)
from simulations.reproductions.request import EVERYTHING, Kept, Request, kept_runs, versions
from simulations.results.environment import environment
from simulations.statistics.over_seeds import LEVEL, over_seeds
from simulations.statistics.summary import final_part

_RATES = "Accuracy of every combination, with its learning rate (edge: the smallest or largest that was tried):"


def measures(entries: Sequence[Entry], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return a row for each run and group, and for all together: dataset, combination, seed, learning_rate, group,
    valid (accuracy of all on the validation part) and accuracy (of the group on the test part).
    """
    rows = []
    for (dataset, combination, experiment), run in zip(entries, runs, strict=True):
        of_run = run.metrics.assign(dataset=dataset, strategy=experiment.strategy, seed=experiment.seed)
        valid, test = (final_part(of_run, split).iloc[0] for split in ("valid", "test"))
        shared = {"dataset": dataset, "combination": combination, "seed": experiment.seed,
                  "learning_rate": experiment.learning_rate, "valid": valid[ALL, "accuracy"]}
        accuracies = test.xs("accuracy", level=1)
        rows += [{**shared, "group": group, "accuracy": accuracy} for group, accuracy in accuracies.items()]
    return pd.DataFrame(rows)


def choose(tried: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the learning rate of the highest mean validation accuracy, by data set and combination."""
    alone = tried[tried["group"] == ALL]
    means = alone.groupby(["dataset", "combination", "learning_rate"], sort=False)["valid"].mean()
    best = means.groupby(level=["dataset", "combination"], sort=False).idxmax()
    return {(dataset, combination): float(rate) for dataset, combination, rate in best}


def costs(measured: pd.DataFrame) -> pd.DataFrame:
    """Return what each combination costs: the accuracy that training without privacy has more with the same seed.

    Args:
        measured: What `measures` returned, of one learning rate for each data set and combination.

    Returns:
        A row for each data set, group and seed, a column for each combination.
    """
    wide = measured.pivot_table(index=["dataset", "group", "seed"], columns="combination", values="accuracy",
                                sort=False)
    return wide.rsub(wide[NONE], axis=0)


def parts(of_combinations: pd.DataFrame) -> pd.DataFrame:
    """Return the Shapley value of every source, and their sum as "together".

    Args:
        of_combinations: What `costs` returned.

    Returns:
        A row for each data set, group and seed.

    Examples:
        >>> cost = {name: 0.1 * len(sources) + 0.2 * ({"noise", "steps"} <= {*sources})
        ...         for name, sources in combinations_of(SOURCES).items()}
        >>> parts(pd.DataFrame([cost])).round(3).iloc[0].to_dict()
        {'clipping': 0.1, 'noise': 0.2, 'sampling': 0.1, 'steps': 0.2, 'together': 0.6}
    """
    values = {}
    for source in SOURCES:
        others = [each for each in SOURCES if each != source]
        added = [_weight(len(before)) * (of_combinations[named((*before, source))] - of_combinations[name])
                 for name, before in combinations_of(others).items()]
        values[source] = pd.concat(added, axis=1).sum(axis=1)
    return pd.DataFrame({**values, "together": of_combinations[named(SOURCES)]})


def _weight(before: int) -> float:
    """Return the share of the orders in which exactly these come before a source."""
    count = len(SOURCES)
    return math.factorial(before) * math.factorial(count - before - 1) / math.factorial(count)


def cost_sources(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1,
                 file: Path = CONFIG) -> str:
    """Run everything, write it to `out`, and return what was found in a sentence for each data set.

    `out` gets runs.csv (every run and group), parts.csv (by data set, group and seed), README.md, a picture of each
    data set and environment.json; kept runs are not repeated. Raises what `simulations.reproductions.fair_fight` does.
    """
    study = load(request, file)
    folder = request.begin(NAME, out)
    tried = plan(study, request.device)
    measured = measures(tried, kept_runs([entry.experiment for entry in tried], folder, on_round, jobs))
    chosen = choose(measured)
    others = plan(study, request.device, chosen)
    confirmed = kept_runs([entry.experiment for entry in others], folder, on_round, jobs)
    measured = pd.concat([measured, *([measures(others, confirmed)] if others else [])], ignore_index=True)
    rates = pd.DataFrame([(*key, rate) for key, rate in chosen.items()],
                         columns=["dataset", "combination", "learning_rate"])
    taken = measured.merge(rates)
    shares = parts(costs(taken))
    experiments = [entry.experiment for entry in [*tried, *others]]
    write_text(out / "runs.csv", to_csv(measured))
    write_text(out / "parts.csv", to_csv(shares.reset_index()))
    for dataset, own in shares.groupby("dataset", sort=False):
        write_text(out / f"{dataset}.svg", picture(str(dataset), own))
    write_json(out / "environment.json", environment(experiments))
    write_text(out / "README.md", page(study, taken, chosen, shares, request, versions(folder, experiments)))
    return " ".join(findings(study, shares))


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
