"""Cost of moments: a whole run with its front beside a private step of dpsgd, and the sums over a million records.

python -m simulations.benchmarks.moments [--out FILE.json] [--repeats N]
"""

from __future__ import annotations

import resource
from functools import partial
from time import perf_counter

import torch
import typer

from fedfair.moments.sums import moment_sums
from simulations.benchmarks.report import Figures, Out, Target, report
from simulations.benchmarks.timing import Repeats, take_turns
from simulations.commands.terminal import plain_errors
from simulations.engines.run import run
from simulations.settings.experiment import Experiment

RECORDS, WIDTH = 1_000_000, 129
RUN, STEPS, SUMS = "moments, whole run and front", "dpsgd, 100 steps", f"sums over {RECORDS:,} records of {WIDTH}"


@plain_errors
def main(repeats: Repeats = 3, out: Out = None) -> None:
    """Time runs on prepared data, one thread, and the sums alone."""
    torch.set_num_threads(1)
    common = {"dataset": "adult", "features": "bounded", "model": "linear", "target_epsilon": 1.0, "eval_every": 1000.0}
    experiments = {RUN: Experiment(strategy="moments", **common),
                   STEPS: Experiment(strategy="dpsgd", steps=100, batch_size=8000, **common)}
    experiments[RUN].task.data()
    times = take_turns({name: partial(_run, made) for name, made in experiments.items()}, repeats)
    before = _most_memory()
    took, grown = _sums(), _most_memory()
    rows: list[Figures] = [{"what": name, **times.figures(name)} for name in experiments]
    rows.append({"what": SUMS, "ms": took, "spread": None})
    report("Moments on adult, one thread", rows, [
        Target("whole run and front, ms (quiet machine)", times.milliseconds(RUN), 1000),
        Target("whole run and front / 100 steps of dpsgd", times.ratio(RUN, STEPS), 1),
        Target("a million records, ms (quiet machine)", took, 15_000),
        Target("a million records, GiB beside the features", (grown - before) / 2**20 - _features_gib(), 2)], out)


def _run(experiment: Experiment) -> float:
    """Run an experiment whose data are prepared; return milliseconds."""
    start = perf_counter()
    run(experiment)
    return 1000 * (perf_counter() - start)


def _sums() -> float:
    """Add up the moments of records that are made up; return milliseconds."""
    draws = torch.Generator().manual_seed(0)
    features = torch.rand(RECORDS, WIDTH, generator=draws) / WIDTH
    y, group = (torch.randint(2, (RECORDS,), generator=draws) for _ in range(2))
    start = perf_counter()
    moment_sums(features, y, group, 2, 2, by_group=False)
    return 1000 * (perf_counter() - start)


def _features_gib() -> float:
    """Return how much memory the features themselves take."""
    return 4 * RECORDS * WIDTH / 2**30


def _most_memory() -> float:
    """Return the most memory that this process had, in KiB."""
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    typer.run(main)
