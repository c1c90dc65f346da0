"""Cost of noise: in floating point or exactly on a grid, from a seed or from the operating system."""

from __future__ import annotations

import torch
import typer

from fedfair.mechanisms.discrete_gaussian import discrete_gaussian
from fedfair.mechanisms.noise import NoiseName, add_noise
from fedfair.mechanisms.randomness import Source, SystemEntropy, generator
from simulations.benchmarks.report import Out, Target, report
from simulations.benchmarks.timing import Repeats, Threads, Turn, calls_of, take_turns

_REFERENCE = "torch.randn"


def main(numbers: int = 92_162, repeats: Repeats = 9, threads: Threads = 1, out: Out = None) -> None:
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


if __name__ == "__main__":
    typer.run(main)
