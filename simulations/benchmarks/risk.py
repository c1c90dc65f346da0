"""Cost of measuring the risk terms: a private run on Adult with and without `risk_every`, in time and memory.

python -m simulations.benchmarks.risk [--every 50] [--epochs 20] [--repeats 3]
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Annotated

import typer

from simulations.benchmarks.processes import undisturbed
from simulations.benchmarks.report import Figures, Out, Target, report
from simulations.benchmarks.timing import Repeats, Timings, timed
from simulations.commands.terminal import plain_errors
from simulations.engines.run import run
from simulations.plans.compare import experiments

_PLAIN, _RISK = "plain", "with risk"


@plain_errors
def main(every: Annotated[int, typer.Option(min=1, help="Steps between two measurements.")] = 50, epochs: int = 20,
         repeats: Repeats = 3, out: Out = None,
         once: Annotated[int, typer.Option(hidden=True, help="One run in this process; 0: no risk terms.")] = -1
         ) -> None:
    """Run dpsgd on Adult in processes of its own, in turn with and without risk terms.

    A process reports its own cost: a look at its memory from outside would hold up runs that use all cores.
    """
    if once >= 0:
        took = _milliseconds(once, epochs)
        print(json.dumps({"ms": took, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    turns: dict[str, list[float]] = {_PLAIN: [], _RISK: []}
    memory = dict.fromkeys(turns, 0.0)
    for _ in range(repeats):
        for name, steps in ((_PLAIN, 0), (_RISK, every)):
            cost = undisturbed([sys.executable, "-m", "simulations.benchmarks.risk", "--once", str(steps),
                                "--epochs", str(epochs)])
            turns[name].append(cost["ms"])
            memory[name] = max(memory[name], cost["MiB"])
    times = Timings(turns)
    rows: list[Figures] = [{"run": name, "s": times.milliseconds(name) / 1000, "spread": times.spread(name),
                            "MiB": memory[name]} for name in turns]
    report(f"dpsgd on adult, {epochs} epochs, risk terms every {every} steps", rows, [
        Target("time, with risk / plain", times.ratio(_RISK, _PLAIN), 2),
        Target("memory, with risk / plain", memory[_RISK] / memory[_PLAIN], 2)], out)


def _milliseconds(every: int, epochs: int) -> float:
    """Return how long one run takes once its data are read; `every` 0 leaves the risk terms out."""
    settings = {"dataset": "adult", "epochs": epochs, **({"risk_every": every} if every else {})}
    (made,) = experiments(["dpsgd"], [0], "yang2024", settings)
    made.task.data()
    return timed(lambda: run(made))


if __name__ == "__main__":
    typer.run(main)
