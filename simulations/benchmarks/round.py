"""Cost of a round: of two clients against a plain loop, and on every engine.

python -m simulations.benchmarks.round step [--out FILE.json] [--repeats N]
python -m simulations.benchmarks.round exchanges [--out FILE.json] [--repeats N]

`exchanges` has two cases: two clients and one private step, where a round is almost nothing but messages; and a
thousand clients that each train an epoch, where it is almost nothing but work. The most that two workers could gain on
a machine shows in two processes that train half of the clients each and share nothing: cores share caches, memory and
sometimes themselves.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Annotated

import torch
import typer

from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat, sensitivity
from fedfair.mechanisms.noise import add_gaussian
from fedfair.mechanisms.randomness import generator, poisson
from fedfair.models.published import loss
from simulations.benchmarks.measuring import (
    Figures,
    FlowerRounds,
    Out,
    Repeats,
    Stopwatch,
    Target,
    Threads,
    Timings,
    report,
    take_turns,
)
from simulations.commands.terminal import plain_errors
from simulations.engines.engines import Engine, Flower, Local, Ray
from simulations.engines.run import run
from simulations.settings.experiment import Experiment

WARM_UP = 5
"""First rounds of each run, which are not measured."""

ALTERNATIVES = {
    "in process, 1 node": ("dpsgd", "local", 1), "in process, 2 nodes": ("dpsgd", "local", 2),
    "in process, 1 node, counts first": ("dpsgd-f", "local", 1),
    "in process, 2 nodes, counts first": ("dpsgd-f", "local", 2)}
"""Strategy, engine and nodes; dpsgd-f asks for counts before the gradients, so that a round has two exchanges."""

CENTRALISED, FLOWER = "centralised", "Flower's simulation, 2 nodes"
Steps = Annotated[int, typer.Option(min=1, help="Measured rounds in each turn.")]


@plain_errors
def step(repeats: Repeats = 8, steps: Steps = 50, flower_rounds: FlowerRounds = 5, dataset: str = "adult",
         threads: Threads = 2, out: Out = None) -> None:
    """Time rounds of two clients, in turns of `steps` rounds; Flower's own simulation has a single turn."""
    torch.set_num_threads(threads)
    turns = {CENTRALISED: partial(centralised, _experiment(dataset, "dpsgd", steps))} | {
        name: partial(federated, _experiment(dataset, strategy, steps), engine, nodes)
        for name, (strategy, engine, nodes) in ALTERNATIVES.items()}
    times = take_turns(turns, repeats)
    rows = [_row(name, times) for name in turns]
    if flower_rounds:
        took = federated(_experiment(dataset, "dpsgd", flower_rounds), "flower", 2)
        rows.append({"step": FLOWER, "ms": took, "spread": None, "ms more": took - times.milliseconds(CENTRALISED)})
    targets = [Target(f"{name}, ms more than centralised", times.excess(name, CENTRALISED), 2.5)
               for name in list(ALTERNATIVES)[:2]]
    report(f"One private step on {dataset}, two clients, {threads} threads", rows, targets, out)


def centralised(experiment: Experiment) -> float:
    """Return milliseconds a step of DP-SGD on all records together, in a plain loop without clients."""
    data, model = experiment.task.data().train, experiment.task.build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=experiment.learning_rate)
    rule, seed, batch = Flat(experiment.clip_norm), experiment.seed, experiment.batch_size
    deviation = experiment.noise_multiplier * sensitivity(rule, len(data.names))
    stopwatch = Stopwatch(WARM_UP)
    for step in range(experiment.steps or 0):
        rows = poisson(seed, step, data.records, batch / len(data))
        probe = per_example(model, loss, data.features(rows), data.y[rows])
        sums = probe.weighted_sum(rule.coefficients(probe.norms, data.group[rows]))
        sums = add_gaussian(sums, deviation, generator(seed, "noise", 0, step))
        for name, parameter in model.named_parameters():
            parameter.grad = sums[name] / batch
        optimizer.step()
        stopwatch(step + 1, 0)
    return stopwatch.milliseconds


def federated(experiment: Experiment, engine: str | Engine, nodes: int | None = None) -> float:
    """Return milliseconds a round, as an engine really runs it."""
    stopwatch = Stopwatch(WARM_UP)
    run(experiment, engine, nodes, stopwatch)
    return stopwatch.milliseconds


def _experiment(dataset: str, strategy: str, measured: int) -> Experiment:
    """Describe two clients that hold two groups, the published MLP, and no evaluation before the end."""
    return Experiment(dataset=dataset, strategy=strategy, clients=2, sync="step", steps=WARM_UP + measured,
                      model="mlp", eval_every=1e9, target_epsilon=None)


def _row(name: str, times: Timings) -> Figures:
    """Make one line of the table."""
    more = None if name == CENTRALISED else times.excess(name, CENTRALISED)
    return {"step": name, **times.figures(name), "ms more": more}


LOCAL, ONE, TWO = "local", "ray, 1 worker", "ray, 2 workers"
ENGINES: dict[str, Engine] = {LOCAL: Local(), ONE: Ray(nodes=1), TWO: Ray(nodes=2)}
APART = {"a process alone": 1, "two processes, apart": 2}
MESSAGES, WORK = "2 clients, 1 step", "1,000 clients, 1 epoch"

MessageRounds = Annotated[int, typer.Option(min=1, help="Measured rounds of one step in each turn.")]
Epochs = Annotated[int, typer.Option(min=1, help="Measured rounds of local epochs in each turn.")]


@plain_errors
def exchanges(repeats: Repeats = 3, steps: MessageRounds = 30, epochs: Epochs = 2, flower_rounds: FlowerRounds = 5,
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
        rows += [_engine_row(case, name, times) for name in turns]
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


def _engine_row(case: str, name: str, times: Timings) -> Figures:
    """Make one line of the table."""
    return {"round": case, "engine": name, **times.figures(name), "times local": times.ratio(name, LOCAL)}


app = typer.Typer(add_completion=False)
for _command in (step, exchanges):
    app.command()(_command)

if __name__ == "__main__":
    app()
