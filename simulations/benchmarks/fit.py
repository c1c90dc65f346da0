"""Cost of `fedfair fit`, from the start of the program to the folder, beside pandas with scikit-learn without privacy.

python -m simulations.benchmarks.fit [--out FILE.json] [--records 50000] [--records 1000000] [--records 3000000]

Seconds of processor time, which other work on the machine disturbs less than the clock; both run in processes of their
own, start-up included. A table of more than a million records is fitted alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from simulations.benchmarks.report import Figures, Out, Target, report
from simulations.commands.terminal import plain_errors

_NUMBERS, _CATEGORIES = 12, 8
_ALLOWED = {50_000: 10.0, 1_000_000: 60.0}
_GIB = {1_000_000: 1.2, 3_000_000: 2.5}
_BESIDE = 1_000_000
_FIT = "from simulations.cli import app; app()"
_PLAIN = """
import sys, pandas as pd
from sklearn.linear_model import LogisticRegression
frame = pd.read_csv(sys.argv[1])
LogisticRegression(max_iter=1000).fit(pd.get_dummies(frame.drop(columns="hired"), dtype=float), frame["hired"])
"""


@plain_errors
def main(records: Annotated[list[int] | None, typer.Option(help="Sizes of tables.")] = None, out: Out = None) -> None:
    """Measure both on made-up tables of 20 columns of features, each once."""
    rows: list[Figures] = []
    targets = []
    with TemporaryDirectory() as folder:
        for size in records or [50_000]:
            file = Path(folder) / f"{size}.csv"
            made_up(size).to_csv(file, index=False)
            fit = _spent([_FIT, "fit", str(file), "--label", "hired", "--group", "sex", "--out", f"{folder}/{size}"])
            programs = {"fedfair fit": fit}
            if size <= _BESIDE:
                programs["pandas, scikit-learn"] = _spent([_PLAIN, str(file)])
            rows += [{"what": f"{name}, {size:,} records", "CPU s": seconds, "GiB": memory}
                     for name, (seconds, memory) in programs.items()]
            if size in _ALLOWED:
                targets.append(Target(f"fedfair fit, {size:,} records, CPU seconds", fit[0], _ALLOWED[size]))
            if size in _GIB:
                targets.append(Target(f"fedfair fit, {size:,} records, GiB", fit[1], _GIB[size]))
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


def _spent(program: Sequence[str]) -> tuple[float, float]:
    """Return the processor seconds and the most GiB of a Python program; raise `RuntimeError` if it fails."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", *program],
                           {**os.environ, "OMP_NUM_THREADS": "1"},
                           file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError("the program failed: its error stands above")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


if __name__ == "__main__":
    typer.run(main)
