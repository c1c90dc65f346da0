"""Trials an hour against the number of workers, and what Ray adds to every trial.

python -m simulations.benchmarks.sweep [--datasets compas,law] [--seeds N] [--config FILE.toml] [--out FILE.json]

By default this runs a part of Yang's Table 1 (simulations/configs/sweeps/yang2024-table1.toml); with all data sets
(--datasets adult,dutch,bank,credit,compas,law) it also says how long the whole table takes at this pace. The same
trials are timed in a plain loop in one process, for comparison.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import ray
import torch
import typer

from simulations.benchmarks.report import Figures, Out, Target, report, save_picture
from simulations.commands.terminal import plain_errors
from simulations.drawing.panels import line_chart
from simulations.engines.run import run
from simulations.plans.sweep import Sweep, trials
from simulations.plans.trials import Resources, run_trials
from simulations.settings.experiment import Experiment

TABLE = Path(__file__).parents[1] / "configs" / "sweeps" / "yang2024-table1.toml"

Config = Annotated[Path, typer.Option(help="A sweep's description, in TOML.")]
Datasets = Annotated[str, typer.Option(help="Some of its data sets, separated by commas.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of its seeds.")]
Workers = Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")]


class Pace(NamedTuple):
    """Seconds until the first trial ended, and trials an hour from then on."""

    first: float
    hourly: float


@plain_errors
def main(config: Config = TABLE, datasets: Datasets = "compas", seeds: Seeds = 1, workers: Workers = "1,2",
         out: Out = None) -> None:
    """Run the trials in a loop, then on Ray with each number of workers; one thread a trial."""
    torch.set_num_threads(1)
    described = Sweep.read(config)
    part = described.model_copy(update={"datasets": tuple(datasets.split(",")), "seeds": described.seeds[:seeds]})
    planned = trials(part)
    paces = {"one process, a loop": _loop(planned)}
    numbers = [int(number) for number in workers.split(",")]
    paces |= {f"ray, {number} workers": _on_ray(planned, number) for number in numbers}
    loop = paces["one process, a loop"].hourly
    rows: list[Figures] = [{"trials": name, "first, s": pace.first, "an hour": pace.hourly,
                            "s a trial": 3600 / pace.hourly, "times the loop": pace.hourly / loop}
                           for name, pace in paces.items()]
    targets = []
    if part.datasets == described.datasets:
        fastest, runs = max(pace.hourly for pace in paces.values()), len(trials(described))
        targets = [Target(f"all {runs} runs of {config.stem} at the best pace, minutes", runs / fastest * 60, 30)]
    title = f"{len(planned)} trials of {config.stem}: {datasets}, {len(part.seeds)} seeds"
    report(title, rows, targets, out)
    save_picture(line_chart("Trials an hour", "workers", {
        "ray": [(number, paces[f"ray, {number} workers"].hourly) for number in numbers],
        "one process, a loop": [(1, loop), (max(numbers), loop)]}), out)


def _loop(planned: Mapping[str, Experiment]) -> Pace:
    """Run every trial in this process, one after the other."""
    with TemporaryDirectory() as folder:
        start = time.time()
        for name, made in planned.items():
            run(made).save(Path(folder) / name)
        return _pace(Path(folder), start, 1)


def _on_ray(planned: Mapping[str, Experiment], workers: int) -> Pace:
    """Run every trial on Ray, with `workers` cores."""
    with TemporaryDirectory() as folder:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning of Ray
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        try:
            start = time.time()
            failed = run_trials(planned, 0, Path(folder) / "trials", Resources())
        finally:
            ray.shutdown()
        if failed:
            raise RuntimeError(f"trials failed: {failed}")
        return _pace(Path(folder) / "trials", start, workers)


def _pace(folder: Path, start: float, workers: int) -> Pace:
    """Compute the pace from the times at which results were written; the first of each worker loads the data."""
    ends = sorted(file.stat().st_mtime for file in folder.glob("*/summary.csv"))
    return Pace(ends[0] - start, 3600 * (len(ends) - workers) / (ends[-1] - ends[workers - 1]))


if __name__ == "__main__":
    typer.run(main)
