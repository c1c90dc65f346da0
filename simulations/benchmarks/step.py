"""Cost of one step: private against plain SGD and against Opacus, of noise, and of measuring excessive risk.

python -m simulations.benchmarks.step models [--out FILE.json] [--repeats N]      the published models
python -m simulations.benchmarks.step recurrent [--out FILE.json] [--repeats N]   recurrent and attending models
python -m simulations.benchmarks.step noise                                       in floating point or on a grid
python -m simulations.benchmarks.step risk [--every 50] [--epochs 20] [--repeats 3]
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Annotated, Literal

import torch
import typer
from opacus.layers import DPGRU, DPLSTM, DPMultiheadAttention
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat, sensitivity
from fedfair.mechanisms.discrete_gaussian import discrete_gaussian
from fedfair.mechanisms.noise import NoiseName, add_gaussian, add_noise
from fedfair.mechanisms.randomness import Source, SystemEntropy, generator
from fedfair.models.find import build
from fedfair.models.published import loss
from simulations.benchmarks.measuring import (
    Figures,
    Out,
    Repeats,
    Target,
    Threads,
    Timings,
    Turn,
    calls_of,
    report,
    take_turns,
    timed,
    undisturbed,
)
from simulations.commands.terminal import plain_errors
from simulations.engines.run import run
from simulations.plans.compare import experiments

Step = Callable[[], object]
StepMaker = Callable[[nn.Module, Tensor, Tensor], Step]
"""Makes a repeatable step from a model, which is copied, and a batch `x`, `y`."""

RATE, CLIP_NORM, NOISE = 0.01, 0.5, 1.0
"""Learning rate, clip norm, and noise multiplier of every step."""


def plain(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a step without privacy: forward, mean cross entropy, backward, SGD."""
    model = deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        """Take one step of SGD."""
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def probe(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a step of the probe alone: forward, backward, and the norm of each example's gradient."""
    model = deepcopy(model)
    return lambda: per_example(model, loss, x, y)


def private(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a private step: probe, flat clipping, noise from a fresh generator, division, SGD."""
    model = deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    rule, groups, taken = Flat(CLIP_NORM), torch.zeros_like(y), iter(range(2**32))
    deviation = NOISE * sensitivity(rule, 1)

    def step() -> None:
        """Take one private step."""
        probe = per_example(model, loss, x, y)
        sums = probe.weighted_sum(rule.coefficients(probe.norms, groups))
        sums = add_gaussian(sums, deviation, generator(0, "noise", 0, next(taken)))
        for name, parameter in model.named_parameters():
            parameter.grad = sums[name] / len(x)
        optimizer.step()

    return step


def opacus_hooks(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a step of Opacus by its default: hooks materialise every example's gradient."""
    return _opacus(model, x, y, "hooks")


def opacus_ghost(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a step of Opacus with ghost clipping: norms first, then a second backward pass over the weighted loss."""
    return _opacus(model, x, y, "ghost")


def _opacus(model: nn.Module, x: Tensor, y: Tensor, mode: Literal["hooks", "ghost"]) -> Step:
    """Make a step of Opacus on this batch; raises `ValueError` if Opacus is not installed."""
    try:
        from opacus import PrivacyEngine
    except ImportError:
        raise ValueError("this benchmark compares with Opacus, which is not installed: pip install opacus") from None
    copy, criterion = deepcopy(model), nn.CrossEntropyLoss()
    made = PrivacyEngine().make_private(
        module=copy, optimizer=torch.optim.SGD(copy.parameters(), lr=RATE), criterion=criterion,
        data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)), noise_multiplier=NOISE,
        max_grad_norm=CLIP_NORM, poisson_sampling=False, grad_sample_mode=mode)
    # With ghost clipping the criterion comes back wrapped, as the third of four.
    wrapped, optimizer, criterion = made[0], made[1], made[2] if mode == "ghost" else criterion

    def step() -> None:
        """Take one private step of Opacus."""
        optimizer.zero_grad()
        criterion(wrapped(x), y).backward()
        optimizer.step()

    return step


MODELS: dict[str, tuple[str, tuple[int, ...], int]] = {
    "Adult MLP": ("mlp", (100,), 2), "MNIST CNN": ("cnn", (1, 28, 28), 10), "MNIST LeNet": ("lenet", (1, 28, 28), 10)}
"""The published models: name, shape of an example, classes."""

STEPS: dict[str, StepMaker] = {
    "SGD": plain, "fedfair": private, "fedfair probe": probe, "Opacus hooks": opacus_hooks,
    "Opacus ghost": opacus_ghost}


@plain_errors
def models(repeats: Repeats = 15, batch: int = 256, threads: Threads = 2, out: Out = None) -> None:
    """Time one step of every kind on every model."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", UserWarning)  # Opacus warns of its random numbers and of its own hooks
    timings = {name: _model_timings(*described, batch, repeats) for name, described in MODELS.items()}
    rows = [_model_row(name, step, times) for name, times in timings.items() for step in STEPS]
    report(f"One step on {batch} examples, {threads} threads", rows, _promised(timings), out)


def _model_timings(model: str, shape: tuple[int, ...], classes: int, batch: int, repeats: int) -> Timings:
    """Time every kind of step on copies of one model and the same random batch."""
    x, y = random_batch(batch, shape, classes)
    built = build(model, (), shape, classes, 0, torch.float32)
    return take_turns({name: calls_of(maker(built, x, y)) for name, maker in STEPS.items()}, repeats)


def random_batch(batch: int, shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    """Draw normal features and uniform labels: the time does not depend on their values."""
    draws = torch.Generator().manual_seed(0)
    return torch.randn(batch, *shape, generator=draws), torch.randint(classes, (batch,), generator=draws)


def _model_row(model: str, step: str, times: Timings) -> Figures:
    """Make one line of the table."""
    return {"model": model, "step": step, **times.figures(step), "x SGD": times.ratio(step, "SGD"),
            "x fedfair": times.ratio(step, "fedfair")}


def _promised(timings: dict[str, Timings]) -> list[Target]:
    """State what was promised."""
    mlp, cnn = timings["Adult MLP"], timings["MNIST CNN"]
    return [
        Target("Adult MLP, private step / SGD", mlp.ratio("fedfair", "SGD"), 1.8),
        Target("Adult MLP, Opacus hooks / private step", mlp.ratio("Opacus hooks", "fedfair"), 20, at_least=True),
        Target("MNIST CNN, private step / SGD", cnn.ratio("fedfair", "SGD"), 1.6)]


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
def recurrent(repeats: Repeats = 15, batch: int = 64, words: int = 16, threads: Threads = 2, out: Out = None) -> None:
    """Time one step of every kind on every model."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", UserWarning)  # Opacus warns of its random numbers and of its own hooks
    logging.disable(logging.WARNING)  # that fedfair takes its slower path
    timings = {name: _recurrent_timings(name, batch, words, repeats) for name in LAYERS}
    rows: list[Figures] = [
        {"model": name, "step": step, **times.figures(step), "x SGD": times.ratio(step, SGD),
         "x Opacus": times.ratio(step, OPACUS)} for name, times in timings.items() for step in (SGD, HERE, OPACUS)]
    report(f"One step on {batch} texts of {words} words, {threads} threads", rows, [
        Target(f"{name}, private step / Opacus", times.ratio(HERE, OPACUS), 2) for name, times in timings.items()], out)


def _recurrent_timings(name: str, batch: int, words: int, repeats: int) -> Timings:
    """Time every kind of step on one random batch."""
    draws = torch.Generator().manual_seed(0)
    x, y = (torch.randint(high, shape, generator=draws) for high, shape in ((WORDS, (batch, words)),
                                                                             (CLASSES, (batch,))))
    ours, theirs = (Reader(make()) for make in LAYERS[name])
    return take_turns({SGD: calls_of(plain(deepcopy(ours), x, y)), HERE: calls_of(private(ours, x, y)),
                       OPACUS: calls_of(opacus_hooks(theirs, x, y))}, repeats)


_REFERENCE = "torch.randn"


def noise(numbers: int = 92_162, repeats: Repeats = 9, threads: Threads = 1, out: Out = None) -> None:
    """Time one release of `numbers` numbers; the default is the number of parameters of the Adult MLP."""
    torch.set_num_threads(threads)
    values = {"all": torch.zeros(numbers, dtype=torch.float64)}
    seeded, reference = generator(0, "benchmark"), generator(0, "reference")

    def adding(noise: NoiseName, source: Source) -> Turn:
        """Make a turn that adds one kind of noise."""
        return calls_of(lambda: add_noise(noise, values, 1.0, source))

    ways: dict[str, Turn] = {
        _REFERENCE: calls_of(lambda: torch.randn(numbers, generator=reference, dtype=torch.float64)),
        "gaussian, seeded": adding("gaussian", seeded),
        "gaussian, system": adding("gaussian", SystemEntropy()),
        "discrete, seeded": adding("discrete", seeded),
        "discrete, system": adding("discrete", SystemEntropy()),
        "discrete, system, draws alone": calls_of(lambda: discrete_gaussian(numbers, SystemEntropy())),
    }
    times = take_turns(ways, repeats)
    rows: list[dict[str, str | float | None]] = [
        {"noise": name, "ms": times.milliseconds(name), "ns a number": 1e6 * times.milliseconds(name) / numbers,
         "against torch.randn": times.ratio(name, _REFERENCE), "spread": times.spread(name)} for name in ways]
    targets = [Target("discrete noise from the operating system, ms", times.milliseconds("discrete, system"), 50)]
    report(f"Noise on {numbers:,} numbers, float64", rows, targets, out)


_PLAIN, _RISK = "plain", "with risk"


@plain_errors
def risk(every: Annotated[int, typer.Option(min=1, help="Steps between two measurements.")] = 50, epochs: int = 20,
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
            cost = undisturbed([sys.executable, "-m", "simulations.benchmarks.step", "risk", "--once", str(steps),
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


app = typer.Typer(add_completion=False)
for _command in (models, recurrent, noise, risk):
    app.command()(_command)

if __name__ == "__main__":
    app()
