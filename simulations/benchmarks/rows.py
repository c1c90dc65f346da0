"""Cost of many rows: `fedfair fit` from the start of the program to the folder, and the sums of moments.

python -m simulations.benchmarks.rows fit [--out FILE.json] [--records 50000] [--records 1000000] [--records 3000000]
python -m simulations.benchmarks.rows moments [--out FILE.json] [--repeats N]

`fit` runs beside pandas with scikit-learn without privacy. Seconds are of processor time, which other work on the
machine disturbs less than the clock; both run in processes of their own, start-up included. A table of more than a
million records is fitted alone. `moments` has a whole run with its front beside a private step of dpsgd, and the sums
over a million records.
"""

from __future__ import annotations

import resource
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from fedfair.moments.sums import moment_sums
from simulations.benchmarks.measuring import Figures, Out, Repeats, Target, report, spent, take_turns
from simulations.commands.terminal import plain_errors
from simulations.engines.run import run
from simulations.settings.experiment import Experiment

_NUMBERS, _CATEGORIES = 12, 8
_ALLOWED = {50_000: 10.0, 1_000_000: 60.0}
_GIB = {1_000_000: 1.0, 3_000_000: 1.5}
_BESIDE = 1_000_000
_FIT = "from simulations.cli import app; app()"
_MADE = """
import sys
from simulations.benchmarks.rows import made_up
made_up(int(sys.argv[1])).to_csv(sys.argv[2], index=False)
"""
_PLAIN = """
import sys, pandas as pd
from sklearn.linear_model import LogisticRegression
frame = pd.read_csv(sys.argv[1])
LogisticRegression(max_iter=1000).fit(pd.get_dummies(frame.drop(columns="hired"), dtype=float), frame["hired"])
"""


@plain_errors
def fit(records: Annotated[list[int] | None, typer.Option(help="Sizes of tables.")] = None, out: Out = None) -> None:
    """Measure both on made-up tables of 20 columns of features, each once."""
    rows: list[Figures] = []
    targets = []
    with TemporaryDirectory() as folder:
        for size in records or [50_000]:
            file = Path(folder) / f"{size}.csv"
            spent([_MADE, str(size), str(file)])  # not here: a child's memory counts from that of its parent on
            cost = spent([_FIT, "fit", str(file), "--label", "hired", "--group", "sex", "--out", f"{folder}/{size}"])
            programs = {"fedfair fit": cost}
            if size <= _BESIDE:
                programs["pandas, scikit-learn"] = spent([_PLAIN, str(file)])
            rows += [{"what": f"{name}, {size:,} records", "CPU s": seconds, "GiB": memory}
                     for name, (seconds, memory) in programs.items()]
            if size in _ALLOWED:
                targets.append(Target(f"fedfair fit, {size:,} records, CPU seconds", cost[0], _ALLOWED[size]))
            if size in _GIB:
                targets.append(Target(f"fedfair fit, {size:,} records, GiB", cost[1], _GIB[size]))
    report("A fit of 20 columns, with start-up", rows, targets, out)


def made_up(records: int) -> pd.DataFrame:
    """Return a table of numbers and categories, some of which tell the label, and two groups.

    Args:
        records: Number of rows.
    """
    draws = np.random.default_rng(0)
    numbers = draws.normal(50, 15, (records, _NUMBERS)).round(2)
    codes = draws.integers(0, 6, (records, _CATEGORIES))
    score = numbers[:, 0] / 15 + codes[:, 0] / 2 + draws.normal(0, 1, records)
    return pd.DataFrame(numbers, columns=[f"number {n}" for n in range(_NUMBERS)]).assign(
        **{f"category {n}": np.array([*"abcdef"])[codes[:, n]] for n in range(_CATEGORIES)},
        sex=draws.choice(["f", "m"], records), hired=np.where(score > np.median(score), "yes", "no"))


RECORDS, WIDTH = 1_000_000, 129
RUN, STEPS, SUMS = "moments, whole run and front", "dpsgd, 100 steps", f"sums over {RECORDS:,} records of {WIDTH}"


@plain_errors
def moments(repeats: Repeats = 3, out: Out = None) -> None:
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


app = typer.Typer(add_completion=False)
for _command in (fit, moments):
    app.command()(_command)

if __name__ == "__main__":
    app()
