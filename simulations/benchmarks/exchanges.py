"""Cost of a round on every engine, with the same model, data and clients: in this process, on Ray, and on Flower's own
simulation.

python -m simulations.benchmarks.exchanges [--out FILE.json] [--repeats N]

Two cases: two clients and one private step, where a round is almost nothing but messages; and a thousand clients that
each train an epoch, where it is almost nothing but work. The most that two workers could gain on a machine shows in two
processes that train half of the clients each and share nothing: cores share caches, memory and sometimes themselves.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Annotated

import torch
import typer

from simulations.benchmarks.report import Figures, Out, Target, report
from simulations.benchmarks.round import WARM_UP, federated
from simulations.benchmarks.timing import FlowerRounds, Repeats, Timings, take_turns
from simulations.commands.terminal import plain_errors
from simulations.engines.engines import Engine, Flower, Local, Ray
from simulations.settings.experiment import Experiment

LOCAL, ONE, TWO, FLOWER = "local", "ray, 1 worker", "ray, 2 workers", "Flower's simulation, 2 nodes"
ENGINES: dict[str, Engine] = {LOCAL: Local(), ONE: Ray(nodes=1), TWO: Ray(nodes=2)}
APART = {"a process alone": 1, "two processes, apart": 2}
MESSAGES, WORK = "2 clients, 1 step", "1,000 clients, 1 epoch"

Steps = Annotated[int, typer.Option(min=1, help="Measured rounds of one step in each turn.")]
Epochs = Annotated[int, typer.Option(min=1, help="Measured rounds of local epochs in each turn.")]


@plain_errors
def main(repeats: Repeats = 3, steps: Steps = 30, epochs: Epochs = 2, flower_rounds: FlowerRounds = 5,
         dataset: str = "adult", clients: int = 1000, out: Out = None) -> None:
    """Time rounds in both cases, one thread a process; Flower's own simulation has a single turn."""
    torch.set_num_threads(1)
    cases = {MESSAGES: partial(_steps, dataset, steps), WORK: partial(_epochs, dataset, clients, epochs)}
    rows: list[Figures] = []
    targets: list[Target] = []
    for case, experiment in cases.items():
        turns = {name: partial(federated, experiment(), engine) for name, engine in ENGINES.items()}
        with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
            if case == WORK:
                turns |= {name: partial(_apart, pool, experiment(), number) for name, number in APART.items()}
            times = take_turns(turns, repeats)
        rows += [_row(case, name, times) for name in turns]
        if flower_rounds:
            took = federated(_steps(dataset, flower_rounds) if case == MESSAGES else
                             _epochs(dataset, clients, flower_rounds), Flower(nodes=2))
            rows.append({"round": case, "engine": FLOWER, "ms": took, "spread": None,
                         "times local": took / times.milliseconds(LOCAL)})
        targets += [Target(f"{case}: {TWO}, ms more than local", times.excess(TWO, LOCAL), 10)
                    if case == MESSAGES else
                    Target(f"{case}: {ONE}, times {TWO}", times.ratio(ONE, TWO), 1.7, at_least=True)]
    report(f"One round on {dataset}, one thread a process", rows, targets, out)


def _steps(dataset: str, measured: int) -> Experiment:
    """Describe two clients that hold the groups, the published MLP (91,000 parameters on Adult), and no evaluation on
    the way.
    """
    return Experiment(dataset=dataset, strategy="dpsgd", clients=2, sync="step", steps=WARM_UP + measured, model="mlp",
                      hidden=(256, 256), eval_every=1e9)


def _epochs(dataset: str, clients: int, measured: int) -> Experiment:
    """Describe many sites that each train an epoch by themselves."""
    return Experiment(dataset=dataset, strategy="dpsgd", partition="site", clients=clients, sync="epoch", batch_size=8,
                      steps=WARM_UP + measured, model="mlp", hidden=(16,), eval_every=1e9)


def _apart(pool: ProcessPoolExecutor, experiment: Experiment, number: int) -> float:
    """Return milliseconds a round of the slowest of `number` processes that do the same and share nothing."""
    running = [pool.submit(federated, experiment, Local()) for _ in range(number)]
    return max(each.result() for each in running)


def _row(case: str, name: str, times: Timings) -> Figures:
    """Make one line of the table."""
    return {"round": case, "engine": name, **times.figures(name), "times local": times.ratio(name, LOCAL)}


if __name__ == "__main__":
    typer.run(main)
