"""What a round costs, in time and memory, with 10 to 100,000 participants.

python -m simulations.benchmarks.clients [--out FILE.json] [--workers N]

Once with a cohort that grows with the participants (one in a hundred, at least ten), once with ten participants in
every round, which shows what is left that grows with their number alone.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from simulations.benchmarks import peers
from simulations.benchmarks.people import FEATURES, POPULATIONS, RECORDS
from simulations.benchmarks.plot import lines, save_plot
from simulations.benchmarks.processes import Measured, measure
from simulations.benchmarks.timing import Figures, Out, Target, report
from simulations.commands.terminal import plain_errors

SIZES = (10, 100, 1_000, 10_000, 100_000)
assert set(SIZES) <= set(POPULATIONS)
FEW = 10  # in a round

Rounds = Annotated[int, typer.Option(min=6, help="Rounds of each run.")]
Workers = Annotated[int, typer.Option(min=0, help="Ray actors; none: in one process.")]


@plain_errors
def main(rounds: Rounds = 50, workers: Workers = 0, out: Out = None) -> None:
    """One run for each number of participants and each cohort, in a process of its own."""
    found = {(size, few): _measured(size, FEW if few else max(FEW, size // 100), rounds, workers)
             for size in SIZES for few in (False, True)}
    rows: list[Figures] = [{
        "participants": f"{size:,}", "data, MiB": size * RECORDS * FEATURES * 4 / 2**20,
        "1 in 100: ms a round": found[size, False].said["ms"], f"{FEW} a round: ms": found[size, True].said["ms"],
        "MiB in all": found[size, True].mebibytes} for size in SIZES]
    smallest, largest = found[SIZES[0], True], found[SIZES[-1], True]
    targets = [Target(f"{FEW} a round: ms more with {SIZES[-1]:,} participants than with {SIZES[0]}",
                      largest.said["ms"] - smallest.said["ms"], 10)]
    title = "What the number of participants costs"
    report(title, rows, targets, out)
    save_plot(lines(title, "participants", {
        "ms a round, 1 participant in 100": [(size, found[size, False].said["ms"]) for size in SIZES],
        f"ms a round, {FEW} participants": [(size, found[size, True].said["ms"]) for size in SIZES],
        "MiB in all": [(size, found[size, True].mebibytes) for size in SIZES]}), out)


def _measured(participants: int, cohort: int, rounds: int, workers: int) -> Measured:
    """Time of a round, and memory."""
    return measure([sys.executable, "-m", f"{peers.__name__}.ours", "--participants", str(participants), "--cohort",
                    str(cohort), "--rounds", str(rounds), "--workers", str(workers)], {"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    typer.run(main)
