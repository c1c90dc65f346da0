"""Cost of per-example clipping: a private step against plain SGD and against Opacus, on one batch.

python -m simulations.benchmarks.per_example [--out FILE.json] [--repeats N]
"""

from __future__ import annotations

import warnings

import torch
import typer
from torch import Tensor

from fedfair.models.find import build
from simulations.benchmarks.report import Figures, Out, Target, report
from simulations.benchmarks.steps import StepMaker, opacus_ghost, opacus_hooks, plain, private, probe
from simulations.benchmarks.timing import Repeats, Threads, Timings, calls_of, take_turns
from simulations.commands.terminal import plain_errors

MODELS: dict[str, tuple[str, tuple[int, ...], int]] = {
    "Adult MLP": ("mlp", (100,), 2), "MNIST CNN": ("cnn", (1, 28, 28), 10), "MNIST LeNet": ("lenet", (1, 28, 28), 10)}
"""The published models: name, shape of an example, classes."""

STEPS: dict[str, StepMaker] = {
    "SGD": plain, "fedfair": private, "fedfair probe": probe, "Opacus hooks": opacus_hooks,
    "Opacus ghost": opacus_ghost}


@plain_errors
def main(repeats: Repeats = 15, batch: int = 256, threads: Threads = 2, out: Out = None) -> None:
    """Time one step of every kind on every model."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", UserWarning)  # Opacus warns of its random numbers and of its own hooks
    timings = {name: _timings(*described, batch, repeats) for name, described in MODELS.items()}
    rows = [_row(name, step, times) for name, times in timings.items() for step in STEPS]
    report(f"One step on {batch} examples, {threads} threads", rows, _targets(timings), out)


def _timings(model: str, shape: tuple[int, ...], classes: int, batch: int, repeats: int) -> Timings:
    """Time every kind of step on copies of one model and the same random batch."""
    x, y = _random_batch(batch, shape, classes)
    built = build(model, (), shape, classes, 0, torch.float32)
    return take_turns({name: calls_of(maker(built, x, y)) for name, maker in STEPS.items()}, repeats)


def _random_batch(batch: int, shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    """Draw normal features and uniform labels: the time does not depend on their values."""
    draws = torch.Generator().manual_seed(0)
    return torch.randn(batch, *shape, generator=draws), torch.randint(classes, (batch,), generator=draws)


def _row(model: str, step: str, times: Timings) -> Figures:
    """Make one line of the table."""
    return {"model": model, "step": step, **times.figures(step), "x SGD": times.ratio(step, "SGD"),
            "x fedfair": times.ratio(step, "fedfair")}


def _targets(timings: dict[str, Timings]) -> list[Target]:
    """State what was promised."""
    mlp, cnn = timings["Adult MLP"], timings["MNIST CNN"]
    return [
        Target("Adult MLP, private step / SGD", mlp.ratio("fedfair", "SGD"), 1.8),
        Target("Adult MLP, Opacus hooks / private step", mlp.ratio("Opacus hooks", "fedfair"), 20, at_least=True),
        Target("MNIST CNN, private step / SGD", cnn.ratio("fedfair", "SGD"), 1.6)]


if __name__ == "__main__":
    typer.run(main)
