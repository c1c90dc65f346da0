"""Rounds of DP-FedAvg with many participants: this program, Flower's simulation and pfl-research side by side.

python -m simulations.benchmarks.rounds [--pfl PYTHON] [--out FILE.json]

Model, data, cohort, clipping and noise are the same everywhere; each alternative is a command of its own, with one
thread a process, and all take turns. PYTHON is that of an environment with pfl-research, for example

    python -m venv pflvenv && pflvenv/bin/pip install 'pfl==0.4.0' 'dp-accounting<0.6' 'numpy<2' torch

(it cannot be installed beside this program, which needs a newer dp-accounting). Flower's simulation gets a node for
each participant, as its users write it. Starting many nodes takes it minutes, so by default it gets fewer participants,
with the same cohort.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from fedfair.fairness.intervals import Estimate
from simulations.benchmarks import peers
from simulations.benchmarks.people import RECORDS, people
from simulations.benchmarks.processes import Measured, measure
from simulations.benchmarks.report import Figures, Out, Target, report, save_picture
from simulations.benchmarks.timing import FlowerRounds, Repeats
from simulations.commands.terminal import plain_errors
from simulations.drawing.panels import bar_chart
from simulations.drawing.scale import decades

LOCAL, RAY, PFL, FLOWER = "fedfair, local", "fedfair, ray, 2 workers", "pfl-research", "Flower's run_simulation"

Rounds = Annotated[int, typer.Option(min=6, help="Rounds of this program and of pfl-research in each turn.")]
Nodes = Annotated[int, typer.Option(min=2, help="Participants of Flower's simulation, a node each.")]
Pfl = Annotated[str, typer.Option(help="Python with pfl-research; by default it is left out.")]


@plain_errors
def main(pfl: Pfl = "", repeats: Repeats = 3, rounds: Rounds = 50, participants: int = 80_000, cohort: int = 800,
         flower_rounds: FlowerRounds = 3, flower_participants: Nodes = 1_000, out: Out = None) -> None:
    """Time rounds, and take the peak memory of all processes together."""
    with TemporaryDirectory() as folder:
        _write(participants, Path(folder))
        commands = {LOCAL: peers.our_command(participants, cohort, rounds),
                    RAY: peers.our_command(participants, cohort, rounds, workers=2)}
        if pfl:
            commands[PFL] = [pfl, f"{Path(peers.__file__).parent}/pfl_research.py", folder, str(cohort), str(rounds)]
        turns: dict[str, list[Measured]] = {name: [] for name in commands}
        for _ in range(repeats):
            for name, command in commands.items():
                turns[name].append(measure(command, peers.ONE_THREAD))
        if flower_rounds:
            turns[FLOWER] = [_flower(Path(folder), min(flower_participants, participants), cohort, flower_rounds)]
    times = {}
    for name, measured in turns.items():
        times[name] = median(each.said["ms"] for each in measured)
    rows = [_row(name, measured, times, cohort) for name, measured in turns.items()]
    memory = median(each.mebibytes for each in turns[LOCAL])
    targets = [Target(f"{LOCAL}: MiB in all", memory, 2048)]
    targets += [Target(f"{LOCAL}: rounds a second, times {name}", times[name] / times[LOCAL], bound, at_least=True)
                for name, bound in ((PFL, 2), (FLOWER, 20)) if name in times]
    title = f"{participants:,} participants, {cohort} a round: milliseconds a round"
    report(title, rows, targets, out)
    bars = {name: Estimate(time) for name, time in times.items()}
    save_picture(bar_chart(title, {title: bars}, decades(list(times.values()))), out)


def _write(participants: int, folder: Path) -> None:
    """Write the records as the peers read them: `x.npy` `[n, 64]` in [0, 1], `y.npy` `[n]`."""
    data, training = people(participants), participants * RECORDS
    np.save(folder / "x.npy", data.x[:training].float().div_(255).numpy())
    np.save(folder / "y.npy", data.y[:training].numpy())


def _flower(folder: Path, participants: int, cohort: int, rounds: int) -> Measured:
    """Measure Flower's simulation, on the records of the first participants."""
    for name in ("x", "y"):
        np.save(folder / f"{name}.npy", np.load(folder / f"{name}.npy")[: participants * RECORDS])
    command = [sys.executable, "-m", f"{peers.__name__}.flower_simulation", str(folder), str(cohort), str(rounds)]
    return measure(command, peers.ONE_THREAD, timeout=1800)


def _row(name: str, turns: Sequence[Measured], times: dict[str, float], cohort: int) -> Figures:
    """Make one line of the table."""
    return {"program": name, "ms a round": times[name], "ms a client": times[name] / cohort,
            "times local": times[name] / times[LOCAL], "MiB": median(turn.mebibytes for turn in turns)}


if __name__ == "__main__":
    typer.run(main)
