"""Every measurement on a graphics card, in one script of some minutes and one file; on a processor where there is none.

python -m simulations.benchmarks.device [--device cuda] [--batch 256 --batch 4096] [--out FILE.json]

Steps: private against plain SGD and against Opacus, for each published model and batch. Noise: drawn by the processor
and brought to the card, as a private step does today, against drawn there. Stacks: the clipped gradients of R models of
one shape at once, for each model, against one alone. Runs: a whole one of dpsgd-f on the digits that are built in, on
the processor and on the card. A call counts until the card has done its work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated

import torch
import typer

from fedfair.gradients.stacked import Batches, stacked
from fedfair.mechanisms.noise import add_gaussian
from fedfair.mechanisms.randomness import generator
from fedfair.models.find import build
from fedfair.models.published import loss
from simulations.benchmarks.measuring import (
    Figures,
    Out,
    Repeats,
    Target,
    Timings,
    Turn,
    calls_of,
    report,
    take_turns,
    timed,
)
from simulations.benchmarks.step import CLIP_NORM, MODELS, STEPS, random_batch
from simulations.commands.terminal import plain_errors
from simulations.engines.run import run
from simulations.settings.experiment import Experiment

SMALL, LARGE = 256, 4096
"""Batches that something was promised for."""

_PROMISED = {SMALL: (1.0, 3.0), LARGE: (1.25, 2.0)}  # most of SGD, and least that Opacus takes as long as ours
_PEERS = ("Opacus hooks", "Opacus ghost")
_HERE, _THERE = "drawn by the processor", "drawn on the device"
_NUMBERS = {"the Adult MLP": 92_162, "450,000 numbers": 450_000}

Part = tuple[list[Figures], list[Target]]
"""Figures of one part of the script, and what was promised of them."""


@plain_errors
def device(device: Annotated[str, typer.Option(help="Device: cuda or cpu; by default cuda where there is one.")] = "",
           batch: Annotated[list[int] | None, typer.Option(min=1, help="Examples of a step.")] = None,
           model: Annotated[list[str] | None, typer.Option(help="Some of the models.")] = None,
           stack: Annotated[list[int] | None, typer.Option(min=1, help="Numbers of models in a stack.")] = None,
           steps: Annotated[int, typer.Option(min=1, help="Steps of a whole run.")] = 300,
           repeats: Repeats = 5, out: Out = None) -> None:
    """Measure all on one device."""
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # Opacus warns of its random numbers and of its own hooks
    models = model or [*MODELS]
    parts = [_steps(where, name, size, repeats) for name in models for size in batch or [SMALL, LARGE]]
    parts += [_noise(where, repeats), _stacks(where, stack or [1, 16, 64, 540], repeats), _runs(where, steps, repeats)]
    named = torch.cuda.get_device_name(where) if where.type == "cuda" else "processor, one thread"
    report(f"On a device: {named}", [row for rows, _ in parts for row in rows],
           [target for _, targets in parts for target in targets], out)


def _steps(where: torch.device, name: str, batch: int, repeats: int) -> Part:
    """Time one step of every kind on one model and batch."""
    kind, shape, classes = MODELS[name]
    x, y = (part.to(where) for part in random_batch(batch, shape, classes))
    built = build(kind, (), shape, classes, 0, torch.float32).to(where)
    times = take_turns({step: _waited(maker(built, x, y), where) for step, maker in STEPS.items()}, repeats)
    title = f"{name}, batch {batch:,}"
    rows: list[Figures] = [*_lines(title, times, "SGD")]
    if batch not in _PROMISED:
        return rows, []
    most, least = _PROMISED[batch]
    peer = min(_PEERS, key=times.milliseconds)
    return rows, [Target(f"{title}: private step / SGD", times.ratio("fedfair", "SGD"), most),
                  Target(f"{title}: {peer} / private step", times.ratio(peer, "fedfair"), least, at_least=True)]


def _noise(where: torch.device, repeats: int) -> Part:
    """Time noise on some numbers."""
    rows: list[Figures] = []
    for name, number in _NUMBERS.items():
        sums, there = {"all": torch.zeros(number, device=where)}, torch.Generator(where).manual_seed(0)
        ways: dict[str, Callable[[], object]] = {
            _HERE: partial(add_gaussian, sums, 1.0, generator(0, "benchmark")),
            _THERE: partial(torch.randn, number, generator=there, device=where)}
        times = take_turns({way: _waited(draw, where) for way, draw in ways.items()}, repeats)
        rows += _lines(f"noise on {name}", times, _THERE)
    return rows, []


def _stacks(where: torch.device, sizes: Sequence[int], repeats: int) -> Part:
    """Time the clipped gradients of stacks of Adult's models; a line has the time of each model."""
    kind, shape, classes = MODELS["Adult MLP"]
    built = build(kind, (), shape, classes, 0, torch.float32).to(where)
    weights = {name: value.detach() for name, value in built.named_parameters()}
    x, y = (part.to(where) for part in random_batch(SMALL, shape, classes))

    def gradients(batches: Batches, number: int) -> None:
        """Compute the clipped sums of a stack."""
        probe = stacked(built, loss, [weights] * number, batches)
        probe.weighted_sums((CLIP_NORM / probe.norms).clamp(max=1.0))

    def of_each(number: int) -> Turn:
        """Return a turn of a stack, in milliseconds a model."""
        turn = _waited(partial(gradients, Batches.of([x] * number, [y] * number), number), where)
        return lambda: turn() / number

    times = take_turns({f"{number} models": of_each(number) for number in sizes}, repeats)
    return [*_lines("clipped gradients, each", times, f"{sizes[0]} models")], []


def _runs(where: torch.device, steps: int, repeats: int) -> Part:
    """Time whole runs on the processor and on the device."""
    made = {name: Experiment(dataset="digits", strategy="dpsgd-f", steps=steps, batch_size=SMALL, device=name)
            for name in dict.fromkeys(("cpu", where.type))}
    times = take_turns({name: partial(timed, partial(run, one)) for name, one in made.items()}, repeats)
    return [*_lines(f"dpsgd-f on digits, {steps} steps", times, "cpu")], []


def _waited(step: Callable[[], object], where: torch.device) -> Turn:
    """Return a turn of a step, each call of which counts until the device has done its work."""
    if where.type != "cuda":
        return calls_of(step)

    def done() -> None:
        """Take the step, and wait for it."""
        step()
        torch.cuda.synchronize(where)

    return calls_of(done)


def _lines(title: str, times: Timings, to: str) -> Iterator[Figures]:
    """Yield a line for each alternative."""
    for name in times.turns:
        yield {"what": title, "way": name, **times.figures(name), "times": times.ratio(name, to), "as long as": to}


app = typer.Typer(add_completion=False)
app.command()(device)

if __name__ == "__main__":
    app()
