"""The fair fight as a page to read: what tuning changes, what it cost, and what is left of the disparate impact."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd
import scipy

from fedfair.accounting.figures import up
from simulations.reproductions.request import Request
from simulations.reproductions.tuning import NAME, PUBLISHED, Tuning
from simulations.results.paired_tests import wilcoxon_less
from simulations.results.reference import REFERENCE
from simulations.results.statistics import spread

_SUBJECT = "dpsgd"


class Interval(NamedTuple):
    """A mean, and half the interval around it."""

    mean: float
    half: float


def page(tuning: Tuning, results: pd.DataFrame, chosen: pd.DataFrame, clip_norms: pd.DataFrame, costs: pd.DataFrame,
         request: Request, made_with: str) -> str:
    """Return the page; results, chosen, clip_norms and costs are those of `simulations.reproductions.fair_fight`, and
    `made_with` names the versions of the program.
    """
    lines = [f"# {request.title('A fair fight')}", "", f"`{request.command(NAME, tuning.seeds)}`", "", made_with, "",
             f"Every method with the settings of {tuning.preset}, and tuned over the learning rates "
             f"{_list(tuning.learning_rates)} and the clip norms {_list(tuning.clip_norms)} at the same epsilon, by "
             f"its mean accuracy on the validation part over {_seeds(len(tuning.choosing))}. The figures are means on "
             f"the test part, ± half a 95 % t-interval over {_seeds(tuning.seeds)}, for each data set by itself. "
             f"Impact is accuracy parity less that of {REFERENCE} with the same seed, tuned like the method.", "",
             *request.left_out(tuning.text)]
    lines += [*(f"- {line}" for line in findings(results)), ""]
    for dataset in results["dataset"].unique():
        lines += [f"## {dataset}", "", *_table(results[results["dataset"] == dataset],
                                               chosen[chosen["dataset"] == dataset]), ""]
    return "\n".join([*lines, *_clip_norms(clip_norms), *_costs(costs)])


def findings(results: pd.DataFrame) -> list[str]:
    """Say what tuning leaves of dpsgd's disparate impact on each data set; nothing without dpsgd and sgd."""
    lines = []
    for dataset in results["dataset"].unique():
        runs = results[(results["dataset"] == dataset) & (results["strategy"] == _SUBJECT)].set_index("seed")
        published, tuned = (runs[runs["version"] == version]["impact"].sort_index() for version in (PUBLISHED, "tuned"))
        if len(tuned) and not tuned.isna().any():
            lines.append(_finding(str(dataset), published.tolist(), tuned.tolist()))
    return lines


def _finding(dataset: str, published: list[float], tuned: list[float]) -> str:
    """Say what one data set shows: the intervals, and what follows from them."""
    before, after = _interval(published), _interval(tuned)
    taken = _interval([first - second for first, second in zip(published, tuned, strict=True)])
    p = wilcoxon_less(tuned, published)
    return (f"{dataset}: {_SUBJECT}'s impact on accuracy parity is {_signed(before)} as published and {_signed(after)} "
            f"tuned, so that tuning takes away {_signed(taken)}: {_verdict(before, after, taken)} (tuned smaller: "
            f"p = {p:.3f}, at best {2.0 ** -len(tuned):.3f}).")


def _verdict(before: Interval, after: Interval, taken: Interval) -> str:
    """Say whether the impact comes from the settings: only if what tuning takes away, seed by seed, is above zero.

    One interval with zero in it and another without say nothing about their difference (Gelman and Stern 2006).
    """
    if not _above_zero(before):
        return "even as published it is not distinguishable from zero"
    if _above_zero(taken) and _above_zero(after):
        return f"{after.mean / before.mean:.0%} of it is left, the rest comes from the settings"
    if _above_zero(taken) and _above_zero(Interval(-after.mean, after.half)):
        return "it comes from the settings, and after tuning the difference has the opposite sign"
    if _above_zero(taken):
        return "it comes from the settings, and what is left is not distinguishable from zero"
    if _above_zero(after):
        return "what is left is not distinguishable from all of it"
    return "neither that nor what is left is distinguishable from zero, so more seeds are needed to say"


def _table(results: pd.DataFrame, chosen: pd.DataFrame) -> Iterator[str]:
    """Yield the table of one data set's methods, published and tuned."""
    yield "| method | setting | epsilon | accuracy | accuracy parity | impact |"
    yield "|---|---|---|---|---|---|"
    edges = set(chosen.loc[chosen["at_edge"], "strategy"])
    for strategy in results["strategy"].unique():
        for version in (PUBLISHED, "tuned"):
            runs = results[(results["strategy"] == strategy) & (results["version"] == version)]
            first = runs.iloc[0]
            clip = "" if strategy == REFERENCE else f", C {first['clip_norm']:g}"
            edge = " (edge of the grid)" if version == "tuned" and strategy in edges else ""
            epsilon = "none" if math.isinf(runs["epsilon"].max()) else up(runs["epsilon"].max(), ".2f")
            cells = (_mean(runs[name].tolist()) for name in ("accuracy", "accuracy_parity", "impact"))
            yield (f"| {strategy} | {version}: lr {first['learning_rate']:g}{clip}{edge} | {epsilon} | "
                   f"{' | '.join(cells)} |")


def _clip_norms(best: pd.DataFrame) -> Iterator[str]:
    """Yield what a clip norm changes once its learning rate is tuned; nothing if there is only one."""
    tried = sorted(best["clip_norm"].unique())
    if len(tried) < 2:
        return
    yield from ("## What the clip norm changes", "", "Mean test accuracy of each clip norm's best learning rate, "
                "chosen on the validation part. The last column is the largest less the smallest.", "",
                f"| data set | method | {' | '.join(f'C {clip_norm:g}' for clip_norm in tried)} | difference |",
                f"|---|---|{'---|' * len(tried)}---|")
    for (dataset, strategy), rows in best.groupby(["dataset", "strategy"], sort=False):
        cells = (f"{row.accuracy:.4f} (lr {row.learning_rate:g})" for row in rows.sort_values("clip_norm").itertuples())
        difference = rows["accuracy"].max() - rows["accuracy"].min()
        yield f"| {dataset} | {strategy} | {' | '.join(cells)} | {difference:.4f} |"
    yield ""


def _costs(costs: pd.DataFrame) -> Iterator[str]:
    """Yield what the search cost."""
    yield from ("## What tuning cost", "", "The epsilon of a tuned method is that of its last run alone. Every setting "
                "that was tried is a private run on the same records: where the search must be paid for, it costs the "
                "last column, unless there is a better argument than composition. The validation records that choose "
                "are not protected.", "", "| data set | method | settings tried | epsilon of one run | of all |",
                "|---|---|---|---|---|")
    for row in costs.to_dict("records"):
        yield (f"| {row['dataset']} | {row['strategy']} | {row['settings']} | {up(row['epsilon'], '.2f')} | "
               f"{up(row['epsilon_of_all'], '.2f')} |")
    yield ""


def _seeds(number: int) -> str:
    """Return a number of seeds in words."""
    return "one seed" if number == 1 else f"{number} seeds"


def _interval(values: list[float]) -> Interval:
    """Return the 95 % interval of Student's t."""
    over_seeds = spread(values)
    return Interval(over_seeds.mean, float(scipy.stats.t.ppf(0.975, len(values) - 1)) * over_seeds.error)


def _above_zero(interval: Interval) -> bool:
    """Return whether a whole interval is above zero."""
    return interval.mean - interval.half > 0


def _signed(interval: Interval) -> str:
    """Return an interval of a difference in words."""
    return f"{interval.mean:+.3f} ± {interval.half:.3f}"


def _mean(values: list[float]) -> str:
    """Return a mean with half its interval; "-" without a reference."""
    mean, half = _interval(values)
    return "-" if math.isnan(mean) else f"{mean:.3f} ± {half:.3f}"


def _list(numbers: tuple[float, ...]) -> str:
    """Return numbers separated by commas."""
    return ", ".join(f"{number:g}" for number in numbers)
