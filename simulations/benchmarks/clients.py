"""Cost of a round in time and memory, with 10 to 100,000 participants.

python -m simulations.benchmarks.clients [--out FILE.json] [--workers N]

Cohorts of one participant in a hundred (at least ten) show what a growing population costs; cohorts of ten show what
grows with the number of participants alone.
"""

from __future__ import annotations

from typing import Annotated

import typer

from simulations.benchmarks.peers import ONE_THREAD, our_command
from simulations.benchmarks.people import FEATURES, POPULATIONS, RECORDS
from simulations.benchmarks.processes import Measured, measure
from simulations.benchmarks.report import Figures, Out, Target, report, save_picture
from simulations.commands.terminal import plain_errors
from simulations.drawing.panels import line_chart

SIZES = (10, 100, 1_000, 10_000, 100_000)
assert set(SIZES) <= set(POPULATIONS)
FEW = 10  # participants in a round of the small cohort

Rounds = Annotated[int, typer.Option(min=6, help="Rounds of each run.")]
Workers = Annotated[int, typer.Option(min=0, help="Ray actors; 0 runs in one process.")]


@plain_errors
def main(rounds: Rounds = 50, workers: Workers = 0, out: Out = None) -> None:
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


if __name__ == "__main__":
    typer.run(main)
