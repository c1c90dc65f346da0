"""Curves of demographic parity against accuracy parity and accuracy (Yang et al. 2024, Figures 2 and 3), over a
setting.

A curve over theta is post-processing: one training run, and one release of score counts, give all of it. A curve over
any other setting takes a run for each value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import ALL, metrics
from fedfair.models.published import loss
from simulations.engines.run import refuse_unfit, run
from simulations.engines.stacked import by_themselves, stacks
from simulations.files.atomic_files import alone_in
from simulations.plans.compare import Ended, OnRound, as_they_end, experiments
from simulations.plans.kept_runs import RUNS, RunFile
from simulations.results.result import Result
from simulations.settings.experiment import Experiment, SettingsError
from simulations.statistics.summary import final_test

THETAS = tuple(place / 50 for place in range(21))
"""The values of theta where none are given: 0 to 0.4."""

_PLAIN, _OF_NOISE = "sgd", ("target_epsilon", "noise_multiplier", "delta")  # the one adds none, whatever they say

MEASURED = ("demographic_parity", "accuracy_parity", "accuracy")
"""What a curve shows, on the test part."""


def curves(strategies: Sequence[str], seeds: Sequence[int], preset: str | None, settings: Mapping[str, Any],
           over: Mapping[str, Sequence[Any]], engine: str = "local", on_round: OnRound = lambda *progress: None,
           jobs: int = 1, kept: Path | None = None) -> pd.DataFrame:
    """Return a row for each strategy, seed and value: dataset, strategy, seed, setting, value, what is `MEASURED`,
    epsilon and its guarantee.

    `over` holds values by "STRATEGY.setting", or by "setting" for all strategies without values of their own (but for
    sgd if it is a setting of the noise). Strategies that search a threshold are otherwise followed over theta ("theta"
    for all of them, by default `THETAS`), and all others are single points. Up to `jobs` runs go on at a time,
    each in a process with one thread if there are several. Points of runs that are in the folder `kept` are read back;
    those of others are added to its `runs.parquet` as soon as they end. Values that are lists or tables are written as
    text. Raises what `experiments` and `run` raise, `SettingsError` for values that are no list, or that no strategy
    uses, and `BlockingIOError` if another command adds runs to the folder.
    """
    with alone_in(kept / RUNS) if kept else nullcontext():
        return follow(plan(strategies, seeds, preset, settings, over), RunFile(kept / RUNS if kept else None), engine,
                      on_round, jobs)


def plan(strategies: Sequence[str], seeds: Sequence[int], preset: str | None, settings: Mapping[str, Any],
         over: Mapping[str, Sequence[Any]]) -> list[CurveRun]:
    """Return the runs that `curves` makes for the same arguments, all checked against their data.

    Raises what `curves` raises for settings, values and data.
    """
    made = experiments(strategies, seeds, preset, settings)
    _refuse_unused(over, made)
    planned = [part for each in made for part in _parts(each, preset, settings, over)]
    refuse_unfit(part.made for part in planned)
    return planned


def follow(planned: Sequence[CurveRun], runs: RunFile, engine: str = "local",
           on_round: OnRound = lambda *progress: None, jobs: int = 1) -> pd.DataFrame:
    """Make the runs that `runs` has not, add them as they end, and return what `curves` returns."""
    def make(missing: Sequence[CurveRun]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Make runs, `jobs` at a time."""
        runs = [part.made for part in missing]
        parts = stacks(runs, jobs) if engine == "local" else by_themselves(runs)
        return as_they_end(_measured, missing, runs, parts, on_round, jobs, partial(run, engine=engine))

    rows = [row for columns in runs.complete(planned, make) for row in columns["points"]]
    frame = pd.DataFrame(rows)
    frame = frame.reindex(columns=list(dict.fromkeys([*frame, "epsilon", "guarantee"])))  # not in earlier files
    frame = frame.astype(dict.fromkeys((*MEASURED, "epsilon"), float))
    frame.loc[frame["guarantee"] == "none", "epsilon"] = math.inf  # which JSON cannot hold
    return frame


def missing_in(runs: RunFile, planned: Sequence[CurveRun]) -> list[CurveRun]:
    """Return the runs that a file of runs has not."""
    return [part for part in planned if runs.find(part.settings()) is None]


def theta_curve(result: Result, thetas: Sequence[float]) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield, for each theta, how a run's model does on the test part under that threshold: no further training or
    release.

    Raises `ValueError` if the run did not search a threshold.
    """
    if result.search is None or result.search.scores is None:
        raise ValueError(f"{result.experiment.strategy} did not search a threshold: set threshold to toc, roc or "
                         "by-group to follow it over theta")
    test = result.data.test
    with torch.no_grad():
        output = result.model(test.features())
        losses = loss(output, test.y)
    empty = GroupCounts.zeros(len(test.names), test.classes)
    for theta in thetas:
        predicted = result.search.choose(theta).rule.predict(output, test.group)
        counts = GroupCounts.of(predicted, test.y, test.group, losses, torch.zeros(len(test)), empty)
        measured = {metric: value for group, metric, value in metrics(counts, test.names, result.search.favourable)
                    if group == ALL}
        yield theta, {name: measured[name] for name in MEASURED}


class CurveRun(NamedTuple):
    """One run, and the values of a setting that its result is measured at: one, unless `by_theta`."""

    made: Experiment
    setting: str
    values: Sequence[Any]
    by_theta: bool = False

    def settings(self) -> dict[str, Any]:
        """Return what tells this run, and the values that it is measured at, from others."""
        return {**self.made.settings(), "over": {self.setting: list(self.values)}}


def _measured(part: CurveRun, ended: Ended) -> dict[str, Any]:
    """Return the points and the ledger of a run, as a `RunFile` keeps them."""
    made, result = part.made, ended.result
    points = theta_curve(result, part.values) if part.by_theta else [(part.values[0], _final(result))]
    rows = [{"dataset": made.dataset, "strategy": made.strategy, "seed": made.seed, "setting": part.setting,
             "value": str(value) if isinstance(value, list | dict) else value, **point,
             "epsilon": result.ledger.epsilon(), "guarantee": result.ledger.guarantee} for value, point in points]
    return {"points": rows, "ledger": result.ledger.to_dict()}


def _refuse_unused(over: Mapping[str, Sequence[Any]], made: Sequence[Experiment]) -> None:
    """Raise `SettingsError` unless `over` holds lists of values, each of which some strategy is followed over."""
    for key, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise SettingsError(f"{key} is {values!r}: give a list of values, for example {key}=[0.1, 0.2]")
    unused = set(over) - {_followed_over(each, over) for each in made}
    if unused:
        names = ", ".join(dict.fromkeys(each.strategy for each in made))
        raise SettingsError(f"no strategy here is followed over {', '.join(sorted(unused))}: write STRATEGY.setting "
                            f"for one of {names}, for example {made[0].strategy}.clip_norm, with a single setting for "
                            "each; or a setting for all of them; or theta for those that search a threshold")


def _parts(made: Experiment, preset: str | None, settings: Mapping[str, Any], over: Mapping[str, Sequence[Any]]
           ) -> Iterator[CurveRun]:
    """Yield the runs that follow an experiment's strategy over its setting."""
    key = _followed_over(made, over)
    if key is None:
        yield CurveRun(made, "", [None])
        return
    setting, values = key.removeprefix(f"{made.strategy}."), over.get(key, THETAS)
    runs = [experiments([made.strategy], [made.seed], preset, {**settings, f"{made.strategy}.{setting}": value})[0]
            for value in values]
    if setting == "theta":
        yield CurveRun(made, setting, values, by_theta=True)
    else:
        yield from (CurveRun(run, setting, [value]) for run, value in zip(runs, values, strict=True))


def _followed_over(made: Experiment, over: Mapping[str, Sequence[Any]]) -> str | None:
    """Return the key of `over` for an experiment's strategy, or theta if it searches a threshold.

    None stands for a single point.
    """
    for key in over:
        owner, _, setting = key.partition(".")
        if owner == made.strategy and setting and (setting != "theta" or made.searches):
            return key
    if made.searches and "theta" in over:
        return "theta"
    for key in over:
        if key in Experiment.model_fields and key != "theta" and not (made.strategy == _PLAIN and key in _OF_NOISE):
            return key
    return "theta" if made.searches else None


def _final(result: Result) -> dict[str, float]:
    """Return what is measured on the test part after a run."""
    row = final_test(result.metrics.assign(dataset="", strategy="", seed=0)).iloc[0]
    return {name: float(row[ALL, name]) for name in MEASURED}
