"""Cost of whole runs: one beside plain SGD steps, many as a sweep on Ray, and the ledger of a long one.

python -m simulations.benchmarks.runs whole [--epochs 20] [--repeats 3] [--out FILE.json]
python -m simulations.benchmarks.runs together [--dataset compas] [--numbers 4,16] [--epochs 5] [--out FILE.json]
python -m simulations.benchmarks.runs sweep [--datasets compas,law] [--seeds N] [--config FILE.toml] [--out FILE.json]
python -m simulations.benchmarks.runs ledger [--steps 20000]

`whole` is dpsgd-f on Adult, evaluation and ledger included, against a plain loop of as many SGD steps; the same run is
also made with checkpoints and a saved result. `together` has runs of several methods and seeds as one program against
the same runs one after the other, in processor time. `ledger` has steps whose multipliers all differ, as dpsgd-f's do.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import numpy as np
import ray
import torch
import typer

from fedfair.accounting import ACCOUNTANTS, Ledger
from fedfair.accounting.composition import _epsilon
from fedfair.accounting.figures import up
from fedfair.accounting.renyi import divergences
from fedfair.mechanisms.clipping import PerGroup
from fedfair.mechanisms.noise import Trust
from fedfair.protocol.round import Round
from simulations.benchmarks.measuring import (
    Figures,
    Out,
    Repeats,
    Target,
    line_chart,
    report,
    save_picture,
    take_turns,
    timed,
)
from simulations.benchmarks.step import plain
from simulations.commands.terminal import plain_errors
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import run
from simulations.engines.stacked import run_stacked
from simulations.plans.compare import experiments
from simulations.plans.sweep import Sweep, trials
from simulations.plans.trials import Resources, run_trials
from simulations.settings.experiment import Experiment

_PLAIN = "plain SGD steps alone"


@plain_errors
def whole(strategy: str = "dpsgd-f", epochs: Annotated[int, typer.Option(min=1)] = 20, repeats: Repeats = 3,
         out: Out = None) -> None:
    """Run a strategy with the settings of yang2024 and take as many plain steps, in turn."""
    (made,) = experiments([strategy], [0], "yang2024", {"dataset": "adult", "epochs": epochs})
    steps = int(epochs * len(made.task.data().train) / made.batch_size)
    times = take_turns({_PLAIN: lambda: _plain_steps(made, steps), strategy: lambda: timed(lambda: run(made)),
                        f"{strategy}, saved": lambda: _saved_run(made)}, repeats)
    rows: list[Figures] = [{"run": name, "s": times.milliseconds(name) / 1000, "spread": times.spread(name),
                            "ms a step": times.milliseconds(name) / steps, "x plain": times.ratio(name, _PLAIN)}
                           for name in times.turns]
    report(f"{epochs} epochs on adult, {steps} steps", rows, [
        Target(f"{strategy}, seconds", times.milliseconds(strategy) / 1000, 10)], out)


def _saved_run(experiment: Experiment) -> float:
    """Return the milliseconds of a run with checkpoints and a saved result."""
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        checkpoint = Checkpoint(folder, experiment.settings())
        return timed(lambda: run(experiment, checkpoint=checkpoint).save(folder))


def _plain_steps(experiment: Experiment, steps: int) -> float:
    """Return the milliseconds of `steps` SGD steps on one batch: no privacy, no clients, no sampling, no evaluation."""
    data, batch = experiment.task.data().train, experiment.batch_size
    step = plain(experiment.task.build_model(), data.features(slice(batch)), data.y[:batch])

    def loop() -> None:
        """Take all steps."""
        for _ in range(steps):
            step()

    return timed(loop)


_TOGETHER = ("sgd", "dpsgd", "dpsgd-f", "dpsgd-global-adapt")


@plain_errors
def together(dataset: str = "compas", numbers: Annotated[str, typer.Option(help="Runs of a stack.")] = "4,16",
             epochs: Annotated[float, typer.Option(min=1)] = 5, repeats: Repeats = 3, out: Out = None) -> None:
    """Make runs with the settings of yang2024 one by one and stacked, in turn."""
    torch.set_num_threads(1)
    sizes = [int(number) for number in numbers.split(",")]
    seeds = range(-(-max(sizes) // len(_TOGETHER)))
    settings = {"dataset": dataset, "epochs": epochs, "eval_every": 1000.0}
    planned = sorted(experiments(_TOGETHER, seeds, "yang2024", settings), key=lambda made: made.seed)
    one = "one by one"
    times = take_turns({one: lambda: _processor_time(lambda: [run(made) for made in planned[:len(_TOGETHER)]],
                                                     len(_TOGETHER)),
                        **{f"{size} together": partial(_stacked_time, planned[:size]) for size in sizes}}, repeats)
    rows: list[Figures] = [{"runs": name, "CPU ms a run": times.milliseconds(name), "spread": times.spread(name),
                            "x one by one": times.ratio(name, one)} for name in times.turns]
    report(f"{epochs:g} epochs on {dataset}, {len(_TOGETHER)} methods", rows, [
        Target(f"{max(sizes)} together, of one by one", times.ratio(f"{max(sizes)} together", one), 0.4)], out)


def _stacked_time(planned: Sequence[Experiment]) -> float:
    """Return the milliseconds of processor that each of some runs takes as one program."""
    return _processor_time(lambda: run_stacked(planned), len(planned))


def _processor_time(work: Callable[[], object], runs: int) -> float:
    """Return the milliseconds of processor that each of some runs takes."""
    began = time.process_time()
    work()
    return (time.process_time() - began) / runs * 1000


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
def sweep(config: Config = TABLE, datasets: Datasets = "compas", seeds: Seeds = 1, workers: Workers = "1,2",
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


_RATE, _NOISE, _COUNTS = 256 / 31655, 1.0, 10.0  # of dpsgd-f on adult


def adaptive_ledger(groups: int, steps: int, seed: int = 0) -> Ledger:
    """Make a kept of `steps` distinct events; at each, the largest bound is up to twice a group's."""
    draws = np.random.default_rng(seed).uniform(1, 2, (steps, groups))
    kept = Ledger(map(str, range(groups)), 1e-6)
    plan = Round(key=str(seed), step=0, rates=(_RATE,) * groups, noise_multiplier=_NOISE, trust=Trust.CENTRAL,
                 clients=1, planned_multipliers=(_NOISE,) * groups, count_noise_multiplier=_COUNTS)
    for clip_norms in draws.min(1, keepdims=True) / draws:
        kept.record(replace(plan, rule=PerGroup(tuple(clip_norms.tolist()))).event())
    return kept


def ledger(steps: Annotated[int, typer.Option(min=1, help="Number of steps in the kept.")] = 20_000) -> None:
    """Print seconds of processor and of wall clock for 2, 5 and 10 groups."""
    for groups in (2, 5, 10):
        kept = adaptive_ledger(groups, steps)
        for accountant in ACCOUNTANTS:
            _epsilon.cache_clear()
            divergences.cache_clear()
            busy, start = time.process_time(), time.perf_counter()
            spent = sorted(kept.epsilon_by_group(accountant=accountant).values())
            print(f"{groups} groups, {steps} steps, {accountant}: {time.process_time() - busy:.2f} s of processor, "
                  f"{time.perf_counter() - start:.2f} s; epsilon {up(spent[0], '.4f')} to {up(spent[-1], '.4f')}")


app = typer.Typer(add_completion=False)
for _command in (whole, together, sweep, ledger):
    app.command()(_command)

if __name__ == "__main__":
    app()
