"""What a setting trades: demographic parity against accuracy parity and accuracy (Yang et al. 2024, Figures 2 and 3).

A curve over theta is post-processing: one training run, and one release of score counts, give all of it. A curve over
any other setting takes a run for each value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import tomli_w
import torch

from fedfair.fairness.metrics import ALL, GroupCounts, metrics
from fedfair.mechanisms import randomness
from fedfair.models.published import loss
from simulations.curve_plot import curve_plot
from simulations.engines.run import Progress, refuse_unfit, run
from simulations.engines.worker_processes import in_processes
from simulations.plans.compare import OnRound, experiments, following
from simulations.results.atomic_files import write_json, write_text
from simulations.results.result import Result
from simulations.results.result_folder import refuse_other
from simulations.results.summary import final_test
from simulations.settings.experiment import Experiment, SettingsError

THETAS = tuple(place / 50 for place in range(21))
"""The values of theta where none are given: 0 to 0.4."""

MEASURED = ("demographic_parity", "accuracy_parity", "accuracy")
"""What a curve shows, on the test part."""


def curves(strategies: Sequence[str], seeds: Sequence[int], preset: str | None, settings: Mapping[str, Any],
           over: Mapping[str, Sequence[Any]], engine: str = "local", on_round: OnRound = lambda *progress: None,
           jobs: int = 1, kept: Path | None = None) -> pd.DataFrame:
    """A row for each strategy, seed and value: dataset, strategy, seed, setting, value, and what is `MEASURED`.

    `over` holds values by "STRATEGY.setting"; strategies that look for a threshold are otherwise followed over theta
    ("theta" for all of them, by default `THETAS`), and all others are single points. With several `jobs`, so many runs
    go on at a time, each in a process with one thread. Points of runs that are in the folder `kept` are read back, and
    others are kept there. Values that are lists or tables are written as text. Raises what `experiments` and `run`
    raise, and `SettingsError` for values that are no list, or that no strategy uses.
    """
    made = experiments(strategies, seeds, preset, settings)
    _refuse_unused(over, made)
    planned = [part for each in made for part in _parts(each, preset, settings, over)]
    refuse_unfit(part.made for part in planned)
    if jobs > 1:
        rows: dict[int, list[dict[str, Any]]] = {}
        for place, found in in_processes(partial(_points, engine=engine, kept=kept), planned, jobs):
            on_round(len(rows), len(planned), f"{jobs} runs at a time", 1, 1)
            rows[place] = found
        return pd.DataFrame([row for place in sorted(rows) for row in rows[place]])
    followed = zip(planned, following([part.made for part in planned], on_round), strict=True)
    return pd.DataFrame([row for part, (_, progress) in followed for row in _points(part, engine, kept, progress)])


def theta_curve(result: Result, thetas: Sequence[float]) -> Iterator[tuple[float, dict[str, float]]]:
    """What a run's model does on the test part, under the threshold for each theta: no further training or release.

    Raises `ValueError` if the run did not look for a threshold.
    """
    if result.search is None or result.search.scores is None:
        raise ValueError(f"{result.experiment.strategy} did not look for a threshold: set threshold to toc, roc or "
                         "by-group to follow it over theta")
    test = result.data.test
    with torch.no_grad():
        output = result.model(test.features())
        losses = loss(output, test.y)
    empty = GroupCounts.zeros(len(test.names), test.classes)
    for theta in thetas:
        predicted = result.search.choose(theta).rule.predict(output, test.group)
        counts = GroupCounts.of(predicted, test.y, test.group, losses, torch.zeros(len(test)), empty)
        found = {metric: value for group, metric, value in metrics(counts, test.names, result.search.favourable)
                 if group == ALL}
        yield theta, {name: found[name] for name in MEASURED}


def save_curves(frame: pd.DataFrame, settings: Mapping[str, Any], folder: Path) -> Path:
    """As `write_curves`, but raises `FileExistsError` if the folder holds something else."""
    refuse_other(folder, settings)
    write_curves(frame, settings, folder)
    return folder


def write_curves(frame: pd.DataFrame, settings: Mapping[str, Any], folder: Path) -> None:
    """Write config.toml, first, so that a folder which is broken off is known again, curves.csv and curves.svg."""
    write_text(folder / "config.toml", tomli_w.dumps(dict(settings)))
    write_text(folder / "curves.csv", frame.to_csv(index=False))
    write_text(folder / "curves.svg", curve_plot(frame))


class _Part(NamedTuple):
    """One run, and the values of a setting that its result is measured at: one, unless `by_theta`."""

    made: Experiment
    setting: str
    values: Sequence[Any]
    by_theta: bool = False


def _points(part: _Part, engine: str, kept: Path | None, progress: Progress = lambda *_: None) -> list[dict[str, Any]]:
    """The points of one run, out of the folder `kept` where they are there, or measured, and put there if it is one."""
    if kept is None:
        return _measured(part, engine, progress)
    described = json.dumps([part.made.identity(), part.setting, list(part.values)], sort_keys=True)
    file = kept / f"{randomness.key(described):016x}.json"
    if not file.is_file():
        write_json(file, {"points": _measured(part, engine, progress)})
    points: list[dict[str, Any]] = json.loads(file.read_text())["points"]
    return points


def _measured(part: _Part, engine: str, progress: Progress = lambda *_: None) -> list[dict[str, Any]]:
    """The points of one run."""
    made, result = part.made, run(part.made, engine, progress=progress)
    points = theta_curve(result, part.values) if part.by_theta else [(part.values[0], _final(result))]
    return [{"dataset": made.dataset, "strategy": made.strategy, "seed": made.seed, "setting": part.setting,
             "value": str(value) if isinstance(value, list | dict) else value, **point} for value, point in points]


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
                            "each, or theta for those that look for a threshold")


def _parts(made: Experiment, preset: str | None, settings: Mapping[str, Any], over: Mapping[str, Sequence[Any]]
           ) -> Iterator[_Part]:
    """The runs that follow an experiment's strategy over its setting."""
    key = _followed_over(made, over)
    if key is None:
        yield _Part(made, "", [None])
        return
    setting, values = key.removeprefix(f"{made.strategy}."), over.get(key, THETAS)
    runs = [experiments([made.strategy], [made.seed], preset, {**settings, f"{made.strategy}.{setting}": value})[0]
            for value in values]
    if setting == "theta":
        yield _Part(made, setting, values, by_theta=True)
    else:
        yield from (_Part(run, setting, [value]) for run, value in zip(runs, values, strict=True))


def _followed_over(made: Experiment, over: Mapping[str, Sequence[Any]]) -> str | None:
    """The key of `over` that is for an experiment's strategy, or theta if it looks for a threshold; None for a single
    point.
    """
    for key in over:
        owner, _, setting = key.partition(".")
        if owner == made.strategy and setting and (setting != "theta" or made.searches):
            return key
    return "theta" if made.searches else None


def _final(result: Result) -> dict[str, float]:
    """What is measured on the test part after a run."""
    row = final_test(result.metrics.assign(dataset="", strategy="", seed=0)).iloc[0]
    return {name: float(row[ALL, name]) for name in MEASURED}
