"""Cost of federation: a round of two clients against the same private step in a plain loop.

python -m simulations.benchmarks.round [--out FILE.json] [--repeats N]
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
import typer

from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat, sensitivity
from fedfair.mechanisms.noise import add_gaussian
from fedfair.mechanisms.randomness import generator
from fedfair.mechanisms.sampling import poisson
from fedfair.models.published import loss
from simulations.benchmarks.report import Figures, Out, Target, report
from simulations.benchmarks.timing import FlowerRounds, Repeats, Stopwatch, Threads, Timings, take_turns
from simulations.commands.terminal import plain_errors
from simulations.engines.engines import Engine
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
def main(repeats: Repeats = 8, steps: Steps = 50, flower_rounds: FlowerRounds = 5, dataset: str = "adult",
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


if __name__ == "__main__":
    typer.run(main)
