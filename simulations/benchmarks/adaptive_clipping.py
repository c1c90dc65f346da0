"""Adaptive clipping: how Flower's own strategies and ours move the bound, on the same client updates.

python -m simulations.benchmarks.adaptive_clipping [--out FILE.json] [--rounds N]

Andrew et al. 2021 move the bound S towards a quantile of the update norms, S <- S exp(-eta (share not clipped -
quantile)), and give a round the noise of the S that clipped in it. Flower 1.41 uses the share that *was* clipped, so
its bound runs away from the quantile, and gives a round the noise of the next S. Both are driven through their own
strategy classes, message by message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    FedAvg,
)
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from rich.console import Console
from rich.table import Table
from torch import Tensor

from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.randomness import generator
from fedfair.node.noisy_sums import with_noise
from fedfair.protocol.messages import pack, unpacked
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task
from simulations.benchmarks.measuring import Out, environment
from simulations.commands.terminal import plain_errors
from simulations.engines.local import LocalGrid, quiet_flower
from simulations.files.atomic_files import write_json
from strategies.dp_fedavg import DpFedavg
from strategies.server import rounds as server
from strategies.server.population import Population
from strategies.server.training import Training

CLIENTS, NUMBERS = 50, 2000
"""Clients, which all join every round, and numbers in an update."""


def update(client: int, round_: int) -> Tensor:
    """Return a client's update `[NUMBERS]`: a random direction, with a norm log-uniform between 0.8 and 1.25 (median
    1).

    A pure function of its arguments, so that every strategy gets the same updates.
    """
    draws = generator(0, "update", client, round_)
    direction = torch.randn(NUMBERS, generator=draws, dtype=torch.float64)
    norm = math.exp(math.log(1.25) * (2 * float(torch.rand((), generator=draws, dtype=torch.float64)) - 1))
    return direction * (norm / float(direction.norm()))


def flower_client(mods: list[Callable[..., Message]]) -> ClientApp:
    """Make a client for Flower's strategies: it returns the weights that it received plus its update."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Reply with the weights after the update, as Flower's strategy expects them."""
        round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        client = int(context.node_config["partition-id"])
        arrays = unpacked(message.content.array_records["arrays"])
        content = RecordDict({"arrays": pack({"w": arrays["w"] + update(client, round_)}),
                              "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return app


def our_client() -> ClientApp:
    """Make a client for ours: it clips its update by the round's rule, counts by its query, and sends the negative."""
    app = ClientApp()

    @app.train("exchange")
    def train(message: Message, context: Context) -> Message:
        """Reply with the clipped update and the count, as dp-fedavg expects them."""
        asked = Round.from_json(str(message.content["round"]["json"]))
        assert asked.rule is not None
        assert asked.query is not None
        client = int(context.node_config["partition-id"])
        value, alike = update(client, asked.step + 1), torch.zeros(1, dtype=torch.long)
        norms = value.norm()[None]
        answer = with_noise({"w": -value * asked.rule.coefficients(norms, alike)},
                            asked.query.counts(norms, alike, len(asked.rates)), asked, [client])
        assert answer.counts is not None
        content = RecordDict({"sums": pack(answer.sums), "counts": pack({"counts": answer.counts}),
                              "node": ConfigRecord({"number": client, "of": CLIENTS, "clients": 1}),
                              "exchange": message.content["exchange"]})
        return Message(content, reply_to=message)

    return app


def mean_clipped(bound: float, round_: int) -> Tensor:
    """Return what the average would be without noise."""
    values = torch.stack([update(client, round_) for client in range(CLIENTS)])
    coefficients = Flat(bound).coefficients(values.norm(dim=1), torch.zeros(CLIENTS, dtype=torch.long))
    return coefficients @ values / CLIENTS


QUANTILE, ETA, NOISE, COUNT_NOISE = 0.5, 0.2, 1.0, 2.5
"""The quantile that S should follow, how fast, the noise multiplier of sum and count together, and the deviation of the
count's noise (n / 20, as Andrew et al. recommend)."""

STARTS = (0.5, 2.0)
"""First bounds, below and above the median norm."""

Rounds = Annotated[int, typer.Option(min=1, help="Rounds of training.")]


class Trace(NamedTuple):
    """Course of one strategy: S before each round and at the end, and each round's noise relative to that of the S that
    clipped.
    """

    bounds: list[float]
    noise_ratios: list[float]


def trace(strategy: FlowerStrategy, client: ClientApp, rounds: int, bound: Callable[[], float], sigma: float) -> Trace:
    """Run a strategy for `rounds` rounds; `bound()` is its S, and `sigma` the noise multiplier that it intends."""
    grid, weights = LocalGrid(client, CLIENTS), torch.zeros(NUMBERS, dtype=torch.float64)
    bounds, ratios = [bound()], []
    for round_ in range(1, rounds + 1):
        config = ConfigRecord({"server-round": round_})
        asked = strategy.configure_train(round_, pack({"w": weights}), config, grid)
        arrays, _ = strategy.aggregate_train(round_, list(grid.send_and_receive(asked)))
        assert isinstance(arrays, ArrayRecord)
        after = unpacked(arrays)["w"].clone()
        noise = after - weights - mean_clipped(bounds[-1], round_)
        ratios.append(float(noise.std()) * CLIENTS / (sigma * bounds[-1]))
        weights = after
        bounds.append(bound())
    return Trace(bounds, ratios)


def flower(start: float, rounds: int, server_side: bool) -> Trace:
    """Run Flower's own adaptive clipping, at the server or by its mod at the clients."""
    wrapper, mods = ((DifferentialPrivacyServerSideAdaptiveClipping, []) if server_side else
                     (DifferentialPrivacyClientSideAdaptiveClipping, [adaptiveclipping_mod]))
    averaging = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    strategy = wrapper(averaging, NOISE, CLIENTS, start, QUANTILE, ETA, COUNT_NOISE)
    return trace(strategy, flower_client(mods), rounds, lambda: strategy.clipping_norm, strategy.noise_multiplier)


def ours(start: float, rounds: int) -> Trace:
    """Run dp-fedavg, with the same noise on sum and count."""
    sigma = (NOISE**-2 - (2 * COUNT_NOISE) ** -2) ** -0.5  # as Flower splits the noise
    options = {"participation": 1.0, "quantile": QUANTILE, "clip_learning_rate": ETA}
    training = Training(steps=rounds, batch_size=1, clip_norm=start, noise_multiplier=sigma,
                        count_noise_multiplier=COUNT_NOISE, options=options)
    method = DpFedavg(Task(dtype="float64"), training, Population(("all",), ((1,),) * CLIENTS, (0,), ("0", "1")))
    return trace(server.Rounds(method), our_client(), rounds, lambda: method.clip_norm, sigma)


ALTERNATIVES: dict[str, Callable[[float, int], Trace]] = {
    "Flower, server side": lambda start, rounds: flower(start, rounds, server_side=True),
    "Flower, client side": lambda start, rounds: flower(start, rounds, server_side=False),
    "fedfair, dp-fedavg": ours,
}


@plain_errors
def main(rounds: Rounds = 60, out: Out = None) -> None:
    """Follow S over some rounds, from a first value below and one above the median norm, which is 1."""
    with quiet_flower():
        traces = {(name, start): run(start, rounds) for name, run in ALTERNATIVES.items() for start in STARTS}
    title = f"S after {rounds} rounds; median norm of the updates 1, wanted quantile {QUANTILE}"
    table = Table(title=title, title_justify="left")
    for column in ("adaptive clipping", "first S", "last S", "not clipped", "noise/wanted"):
        table.add_column(column, justify="left" if column.startswith("adaptive") else "right", no_wrap=True)
    figures = [_figures(name, start, course, rounds) for (name, start), course in traces.items()]
    for row in figures:
        table.add_row(*(value if isinstance(value, str) else f"{value:.3g}" for key, value in row.items()
                        if key != "bounds"))
    Console().print(table)
    _write(out, title, figures)


def _write(out: Path | None, title: str, figures: Iterable[dict[str, object]]) -> None:
    """Write the figures and every round's S as JSON."""
    if out is not None:
        write_json(out, {"title": title, "environment": environment(), "figures": list(figures)})


def _figures(name: str, start: float, course: Trace, rounds: int) -> dict[str, object]:
    """Compute one row; its noise ratio is the median over the rounds."""
    norms = torch.stack([update(client, rounds).norm() for client in range(CLIENTS)])
    ratio = sorted(course.noise_ratios)[len(course.noise_ratios) // 2]
    return {"strategy": name, "first": start, "last": course.bounds[-1],
            "not_clipped": float((norms <= course.bounds[-1]).double().mean()), "noise_ratio": ratio,
            "bounds": course.bounds}


if __name__ == "__main__":
    typer.run(main)
