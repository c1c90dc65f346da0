"""Runs, sweeps and fits that are killed at random moments and started again, compared with undisturbed ones.

python -m simulations.benchmarks.kills [--kills 30] [--out FILE.json]

SIGKILL ends the program and all that it started. Afterwards weights, ledger and tables must be the same to the last
bit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from safetensors.torch import load_file

from simulations.benchmarks.measuring import Figures, Out, Target, report
from simulations.commands.terminal import plain_errors
from simulations.plans.sweep import Sweep

FEDFAIR = [sys.executable, "-c", "from simulations.cli import app; app()"]
FILES = ("config.toml", "summary.csv", "ledger.json", "trials.csv")  # files of a run, and of a sweep

Kills = Annotated[int, typer.Option(min=1, help="Number of kills of each: runs, sweeps, and fits.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of the moments.")]


@plain_errors
def main(kills: Kills = 30, seed: Seed = 0, out: Out = None) -> None:
    """Kill runs, sweeps and fits, start them again, and compare."""
    with TemporaryDirectory() as folder:
        config = Path(folder) / "sweep.toml"
        config.write_text(Sweep(
            strategies=["dpsgd", "dpsgd-f"], seeds=1, vary={"learning_rate": [0.1, 0.5]},
            settings={"steps": 200, "hidden": [8], "accountant": "rdp", "eval_every": 100.0}).to_toml())
        commands = {
            "run": [*FEDFAIR, "run", "--dataset", "digits", "--set", "steps=2000", "--set", "hidden=[8]", "--set",
                    "eval_every=100.0", "--checkpoint-every", "50", "--out"],
            "sweep": [*FEDFAIR, "sweep", str(config), "--out"],
            "fit": [*FEDFAIR, "fit", str(_people(Path(folder))), "--label", "hired", "--group", "sex", "--set",
                    "randomness=seeded", "--out"]}
        rows = [_row(kind, command, kills, seed, Path(folder)) for kind, command in commands.items()]
    targets = [Target(f"{row['what']}: files that differ", float(row["files that differ"] or 0), 0) for row in rows]
    report("Killed and started again, against left alone", rows, targets, out)


def _people(folder: Path) -> Path:
    """Write a table for a fit, and return its file."""
    draws = np.random.default_rng(0)
    years, sex = draws.integers(0, 30, 3000), draws.choice(["f", "m"], 3000)
    hired = np.where(years + draws.normal(0, 5, 3000) > 15, "yes", "no")
    pd.DataFrame({"years": years, "sex": sex, "hired": hired}).to_csv(folder / "people.csv", index=False)
    return folder / "people.csv"


def _row(kind: str, command: list[str], kills: int, seed: int, folder: Path) -> Figures:
    """Measure one kind of program, killed `kills` times in all; after each result another one is begun."""
    whole, start, chance = folder / f"{kind}-whole", time.monotonic(), random.Random(seed)  # noqa: S311
    killed([*command, str(whole)], 0)
    length, done, results, wrong = time.monotonic() - start, 0, 0, 0
    while done < kills:
        resumed = folder / f"{kind}-{results}"
        done += killed([*command, str(resumed)], kills - done, lambda: length * chance.uniform(0.1, 1.0),
                       lambda: kind == "fit" and resumed.exists())  # noqa: B023 - it is asked in this round
        wrong, results = wrong + len(different(whole, resumed)), results + 1
    return {"what": kind, "left alone, s": length, "kills": float(done), "results": float(results),
            "files that differ": float(wrong)}


def killed(command: Sequence[str], kills: int, moment: Callable[[], float] = lambda: 0.0,
           finished: Callable[[], bool] = lambda: False) -> int:
    """Start a command again and again until it ends by itself, and return how often it was killed.

    Each of the first `kills` starts is killed after `moment()` seconds. A killed command that had `finished` is not
    started again, as a fit refuses to be made anew. Raises `RuntimeError` if the command fails by
    itself.
    """
    done, environment = 0, {**os.environ, "OMP_NUM_THREADS": "1"}
    while True:
        with subprocess.Popen(  # noqa: S603
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True,
                start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=moment() if done < kills else None)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                done += 1
                if finished():
                    return done
    if process.returncode:
        raise RuntimeError(f"the program ended with {process.returncode}: {output[-500:]}")
    return done


def different(one: Path, other: Path) -> list[str]:
    """List the files that differ between two results, of a run or of a sweep with its trials."""
    names = {str(file.relative_to(folder)) for folder in (one, other) for file in folder.rglob("*")
             if file.name in (*FILES, "model.safetensors", "checkpoint.pt")}
    return sorted(name for name in names if not _same(one / name, other / name))


def _same(one: Path, other: Path) -> bool:
    """Return whether two files hold the same: weights by their bits, other files by their bytes."""
    if not (one.is_file() and other.is_file()):
        return False
    if one.suffix != ".safetensors":
        return one.read_bytes() == other.read_bytes()
    a, b = load_file(one), load_file(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


if __name__ == "__main__":
    typer.run(main)
