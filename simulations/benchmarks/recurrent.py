"""Cost of a private step of recurrent and attending models: here against Opacus's hooks, on one batch.

python -m simulations.benchmarks.recurrent [--out FILE.json] [--repeats N]
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from copy import deepcopy

import torch
import typer
from opacus.layers import DPGRU, DPLSTM, DPMultiheadAttention
from torch import Tensor, nn

from simulations.benchmarks.report import Figures, Out, Target, report
from simulations.benchmarks.steps import opacus_hooks, plain, private
from simulations.benchmarks.timing import Repeats, Threads, Timings, calls_of, take_turns
from simulations.commands.terminal import plain_errors

WIDTH, WORDS, CLASSES = 32, 100, 4


class Reader(nn.Module):
    """Embeds words `[B, T]`, sends them through a layer, and scores the mean of what comes out."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(WORDS, WIDTH), layer, nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, T]` to `[B, classes]`."""
        h = self.words(x)
        h = self.layer(h, h, h) if isinstance(self.layer, _ATTENTION) else self.layer(h)
        scores: Tensor = self.head((h[0] if isinstance(h, tuple) else h).mean(1))
        return scores


class Block(nn.Module):
    """One block of a Transformer's encoder: attention and two layers, each with a norm and a way around it."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention, self.first, self.second = attention, nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, T, p]` to `[B, T, p]`."""
        h = self.norms[0](x + self.attention(x, x, x)[0])
        values: Tensor = self.norms[1](h + self.second(torch.relu(self.first(h))))
        return values


_ATTENTION = (nn.MultiheadAttention, DPMultiheadAttention)
Maker = Callable[[], nn.Module]

LAYERS: dict[str, tuple[Maker, Maker]] = {
    "LSTM": (lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True), lambda: DPLSTM(WIDTH, WIDTH, batch_first=True)),
    "GRU": (lambda: nn.GRU(WIDTH, WIDTH, batch_first=True), lambda: DPGRU(WIDTH, WIDTH, batch_first=True)),
    "attention": (lambda: nn.MultiheadAttention(WIDTH, 4, batch_first=True),
                  lambda: DPMultiheadAttention(WIDTH, 4, batch_first=True)),
    "Transformer": (
        lambda: nn.Sequential(*(Block(nn.MultiheadAttention(WIDTH, 4, batch_first=True)) for _ in range(2))),
        lambda: nn.Sequential(*(Block(DPMultiheadAttention(WIDTH, 4, batch_first=True)) for _ in range(2))))}
"""PyTorch's layer, and the one that Opacus takes in its place."""

SGD, HERE, OPACUS = "SGD", "fedfair", "Opacus hooks"


@plain_errors
def main(repeats: Repeats = 15, batch: int = 64, words: int = 16, threads: Threads = 2, out: Out = None) -> None:
    """Time one step of every kind on every model."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", UserWarning)  # Opacus warns of its random numbers and of its own hooks
    logging.disable(logging.WARNING)  # that fedfair takes its slower path
    timings = {name: _timings(name, batch, words, repeats) for name in LAYERS}
    rows: list[Figures] = [
        {"model": name, "step": step, **times.figures(step), "x SGD": times.ratio(step, SGD),
         "x Opacus": times.ratio(step, OPACUS)} for name, times in timings.items() for step in (SGD, HERE, OPACUS)]
    report(f"One step on {batch} texts of {words} words, {threads} threads", rows, [
        Target(f"{name}, private step / Opacus", times.ratio(HERE, OPACUS), 2) for name, times in timings.items()], out)


def _timings(name: str, batch: int, words: int, repeats: int) -> Timings:
    """Time every kind of step on one random batch."""
    draws = torch.Generator().manual_seed(0)
    x, y = (torch.randint(high, shape, generator=draws) for high, shape in ((WORDS, (batch, words)),
                                                                             (CLASSES, (batch,))))
    ours, theirs = (Reader(make()) for make in LAYERS[name])
    return take_turns({SGD: calls_of(plain(deepcopy(ours), x, y)), HERE: calls_of(private(ours, x, y)),
                       OPACUS: calls_of(opacus_hooks(theirs, x, y))}, repeats)


if __name__ == "__main__":
    typer.run(main)
