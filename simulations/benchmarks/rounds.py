"""A round of DP-FedAvg with many participants: this program, Flower's simulation and pfl-research side by side.

python -m simulations.benchmarks.rounds [--pfl PYTHON] [--out FILE.json]

The same model, data, cohort, clipping and noise everywhere; each alternative is a command of its own, one thread a
process, and all take turns. PYTHON is that of an environment with pfl-research, for example

    python -m venv pflvenv && pflvenv/bin/pip install 'pfl==0.4.0' 'dp-accounting<0.6' 'numpy<2' torch

(it cannot be installed beside this program, which needs a newer dp-accounting). Flower's simulation gets a node for
each participant, as one writes it there. To start many nodes takes it minutes, so by default it gets fewer
participants, with the same cohort.
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

from simulations.benchmarks import peers
from simulations.benchmarks.people import RECORDS, people
from simulations.benchmarks.plot import bars, save_plot
from simulations.benchmarks.processes import Measured, measure
from simulations.benchmarks.timing import Figures, Out, Repeats, Target, report
from simulations.commands.terminal import plain_errors

LOCAL, RAY, PFL, FLOWER = "fedfair, local", "fedfair, ray, 2 workers", "pfl-research", "Flower's run_simulation"

Rounds = Annotated[int, typer.Option(min=6, help="Rounds of this program and of pfl in each turn.")]
FlowerRounds = Annotated[int, typer.Option(min=0, help="Rounds of Flower's simulation in its one turn; 0: not run.")]
Nodes = Annotated[int, typer.Option(min=2, help="Participants of Flower's simulation, a node each.")]
Pfl = Annotated[str, typer.Option(help="Python with pfl-research; none: it is not run.")]


@plain_errors
def main(pfl: Pfl = "", repeats: Repeats = 3, rounds: Rounds = 50, participants: int = 80_000, cohort: int = 800,
         flower_rounds: FlowerRounds = 3, flower_participants: Nodes = 1_000, out: Out = None) -> None:
    """Time rounds, and take the memory of all processes together at its peak."""
    asked = ["--participants", str(participants), "--cohort", str(cohort), "--rounds", str(rounds)]
    ours = [sys.executable, "-m", f"{peers.__name__}.ours", *asked]
    with TemporaryDirectory() as folder:
        _write(participants, Path(folder))
        commands = {LOCAL: ours, RAY: [*ours, "--workers", "2"]}
        if pfl:
            commands[PFL] = [pfl, f"{Path(peers.__file__).parent}/pfl_research.py", folder, str(cohort), str(rounds)]
        found = {name: [] for name in commands}  # type: dict[str, list[Measured]]
        for _ in range(repeats):
            for name, command in commands.items():
                found[name].append(measure(command, {"OMP_NUM_THREADS": "1"}))
        if flower_rounds:
            found[FLOWER] = [_flower(Path(folder), min(flower_participants, participants), cohort, flower_rounds)]
    times = {name: median(turn.said["ms"] for turn in turns) for name, turns in found.items()}
    rows = [_row(name, turns, times, cohort) for name, turns in found.items()]
    memory = median(turn.mebibytes for turn in found[LOCAL])
    targets = [Target(f"{LOCAL}: MiB in all", memory, 2048)]
    targets += [Target(f"{LOCAL}: rounds a second, times {name}", times[name] / times[LOCAL], bound, at_least=True)
                for name, bound in ((PFL, 2), (FLOWER, 20)) if name in times]
    title = f"{participants:,} participants, {cohort} a round: milliseconds a round"
    report(title, rows, targets, out)
    save_plot(bars(title, times), out)


def _write(participants: int, folder: Path) -> None:
    """The records as the peers read them: `x.npy` `[n, 64]` in [0, 1], `y.npy` `[n]`."""
    data, training = people(participants), participants * RECORDS
    np.save(folder / "x.npy", data.x[:training].float().div_(255).numpy())
    np.save(folder / "y.npy", data.y[:training].numpy())


def _flower(folder: Path, participants: int, cohort: int, rounds: int) -> Measured:
    """Flower's simulation, on the records of the first participants."""
    for name in ("x", "y"):
        np.save(folder / f"{name}.npy", np.load(folder / f"{name}.npy")[: participants * RECORDS])
    command = [sys.executable, "-m", f"{peers.__name__}.flower_simulation", str(folder), str(cohort), str(rounds)]
    return measure(command, {"OMP_NUM_THREADS": "1"}, timeout=1800)


def _row(name: str, turns: Sequence[Measured], times: dict[str, float], cohort: int) -> Figures:
    """One line of the table."""
    return {"program": name, "ms a round": times[name], "ms a client": times[name] / cohort,
            "times local": times[name] / times[LOCAL], "MiB": median(turn.mebibytes for turn in turns)}


if __name__ == "__main__":
    typer.run(main)
