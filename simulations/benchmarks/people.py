"""Many participants with few records each: what a round takes, by their number, and beside other programs.

python -m simulations.benchmarks.people clients [--out FILE.json] [--workers N]
python -m simulations.benchmarks.people rounds [--pfl PYTHON] [--out FILE.json]

Every participant has 20 images of 8 x 8 pixels in 10 classes; the model is logistic regression, 650 parameters. The
data are generated, and serve to time rounds, not to learn anything.

`clients` has 10 to 100,000 participants. Cohorts of one participant in a hundred (at least ten) show what a growing
population costs; cohorts of ten show what grows with the number of participants alone.

`rounds` has this program, Flower's simulation and pfl-research side by side. Model, data, cohort, clipping and noise
are the same everywhere; each alternative is a command of its own, with one thread a process, and all take turns.
PYTHON is that of an environment with pfl-research, for example

    python -m venv pflvenv && pflvenv/bin/pip install 'pfl==0.4.0' 'dp-accounting<0.6' 'numpy<2' torch

(it cannot be installed beside this program, which needs a newer dp-accounting). Flower's simulation gets a node for
each participant, as its users write it. Starting many nodes takes it minutes, so by default it gets fewer participants,
with the same cohort.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import torch
import typer

from fedfair.datasets import DATASETS, GroupedDataset, Source
from fedfair.fairness.intervals import Estimate
from fedfair.mechanisms.randomness import generator
from simulations.benchmarks import peers
from simulations.benchmarks.measuring import (
    Figures,
    FlowerRounds,
    Measured,
    Out,
    Repeats,
    Target,
    line_chart,
    measure,
    report,
    save_picture,
)
from simulations.benchmarks.peers import ONE_THREAD, our_command
from simulations.commands.terminal import plain_errors
from simulations.drawing.figure import decades
from simulations.drawing.svg import bar_chart
from simulations.settings.experiment import Experiment

FEATURES, CLASSES, RECORDS, TESTED = 64, 10, 20, 1000
BATCH, LEARNING_RATE, CLIP_NORM, NOISE = 10, 0.1, 0.5, 1.0
POPULATIONS = (10, 100, 1_000, 8_000, 10_000, 80_000, 100_000)


def people(participants: int, group: str | None = None) -> GroupedDataset:
    """Generate 20 training records of each participant, one after the other, and 1,000 test records of the first ones.

    A label is the class that a random linear model scores highest. There is one group.
    """
    draws, training = generator(0, "people"), participants * RECORDS
    x = torch.randint(256, (training + TESTED, FEATURES), generator=draws, dtype=torch.uint8)
    scores = torch.randn(FEATURES, CLASSES, generator=draws)
    y = torch.cat([((part.float() - 127.5) @ scores).argmax(1) for part in torch.split(x, 2**16)])
    participant = torch.cat([torch.arange(training) // RECORDS, torch.arange(TESTED) % participants])
    published = (torch.arange(len(x)) >= training).long() * 2
    return GroupedDataset(x, y, torch.zeros_like(y), ("everybody",), CLASSES, participant=participant,
                          published=published)


def register() -> None:
    """Register the populations as data sets "people-10" and so on, in this process."""
    for participants in POPULATIONS:
        DATASETS.register(f"people-{participants}")(Source(partial(people, participants), {}))


def experiment(participants: int, cohort: int, rounds: int) -> Experiment:
    """Describe DP-FedAvg with `cohort` participants expected in a round, an epoch each; evaluated once, at the end."""
    register()
    return Experiment(dataset=f"people-{participants}", split=(0.9, 0.0, 0.1), partition="natural", model="logistic",
                      strategy="dp-fedavg", steps=rounds, batch_size=BATCH, learning_rate=LEARNING_RATE,
                      clip_norm=CLIP_NORM, noise_multiplier=NOISE, eval_every=1e9,
                      options={"participation": min(1.0, cohort / participants)})


SIZES = (10, 100, 1_000, 10_000, 100_000)
assert set(SIZES) <= set(POPULATIONS)
FEW = 10  # participants in a round of the small cohort

RunRounds = Annotated[int, typer.Option(min=6, help="Rounds of each run.")]
Workers = Annotated[int, typer.Option(min=0, help="Ray actors; 0 runs in one process.")]


@plain_errors
def clients(rounds: RunRounds = 50, workers: Workers = 0, out: Out = None) -> None:
    """Run every number of participants with either cohort, each run in a process of its own."""
    growing = {size: _measured(size, max(FEW, size // 100), rounds, workers) for size in SIZES}
    few = {size: _measured(size, FEW, rounds, workers) for size in SIZES}
    rows: list[Figures] = [{
        "participants": f"{size:,}", "data, MiB": size * RECORDS * FEATURES * 4 / 2**20,
        "1 in 100: ms a round": growing[size].said["ms"], f"{FEW} a round: ms": few[size].said["ms"],
        "MiB in all": few[size].mebibytes} for size in SIZES]
    targets = [Target(f"{FEW} a round: ms more with {SIZES[-1]:,} participants than with {SIZES[0]}",
                      few[SIZES[-1]].said["ms"] - few[SIZES[0]].said["ms"], 10)]
    title = "What the number of participants costs"
    report(title, rows, targets, out)
    save_picture(line_chart(title, "participants", {
        "ms a round, 1 participant in 100": [(size, growing[size].said["ms"]) for size in SIZES],
        f"ms a round, {FEW} participants": [(size, few[size].said["ms"]) for size in SIZES],
        "MiB in all": [(size, few[size].mebibytes) for size in SIZES]}), out)


def _measured(participants: int, cohort: int, rounds: int, workers: int) -> Measured:
    """Measure the time of a round and the memory."""
    return measure(our_command(participants, cohort, rounds, workers), ONE_THREAD)


LOCAL, RAY, PFL, FLOWER = "fedfair, local", "fedfair, ray, 2 workers", "pfl-research", "Flower's run_simulation"

Rounds = Annotated[int, typer.Option(min=6, help="Rounds of this program and of pfl-research in each turn.")]
Nodes = Annotated[int, typer.Option(min=2, help="Participants of Flower's simulation, a node each.")]
Pfl = Annotated[str, typer.Option(help="Python with pfl-research; by default it is left out.")]


@plain_errors
def rounds(pfl: Pfl = "", repeats: Repeats = 3, rounds: Rounds = 50, participants: int = 80_000, cohort: int = 800,
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


app = typer.Typer(add_completion=False)
for _command in (clients, rounds):
    app.command()(_command)

if __name__ == "__main__":
    app()
