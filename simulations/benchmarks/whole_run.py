"""Cost of a whole run, evaluation and ledger included: dpsgd-f on Adult against a plain loop of as many SGD steps.

The same run is also made with checkpoints and a saved result.

python -m simulations.benchmarks.whole_run [--epochs 20] [--repeats 3] [--out FILE.json]
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from simulations.benchmarks.report import Figures, Out, Target, report
from simulations.benchmarks.steps import plain
from simulations.benchmarks.timing import Repeats, take_turns, timed
from simulations.commands.terminal import plain_errors
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import run
from simulations.plans.compare import experiments
from simulations.settings.experiment import Experiment

_PLAIN = "plain SGD steps alone"


@plain_errors
def main(strategy: str = "dpsgd-f", epochs: Annotated[int, typer.Option(min=1)] = 20, repeats: Repeats = 3,
         out: Out = None) -> None:
    """Run a strategy with the settings of yang2024 and take as many plain steps, in turn."""
    (made,) = experiments([strategy], [0], "yang2024", {"dataset": "adult", "epochs": epochs})
    steps = int(epochs * len(made.task.data().train) / made.batch_size)
    times = take_turns({_PLAIN: lambda: _plain_steps(made, steps), strategy: lambda: timed(lambda: run(made)),
                        f"{strategy}, saved": lambda: _saved_run(made)}, repeats)
    rows: list[Figures] = [{"run": name, "s": times.milliseconds(name) / 1000, "spread": times.spread(name),
                            "ms a step": times.milliseconds(name) / steps, "x plain": times.ratio(name, _PLAIN)}
                           for name in times.turns]
    report(f"{epochs} epochs on adult, {steps} steps", rows, [
        Target(f"{strategy}, seconds", times.milliseconds(strategy) / 1000, 10)], out)


def _saved_run(experiment: Experiment) -> float:
    """Return the milliseconds of a run with checkpoints and a saved result."""
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        checkpoint = Checkpoint(folder, experiment.settings())
        return timed(lambda: run(experiment, checkpoint=checkpoint).save(folder))


def _plain_steps(experiment: Experiment, steps: int) -> float:
    """Return the milliseconds of `steps` SGD steps on one batch: no privacy, no clients, no sampling, no evaluation."""
    data, batch = experiment.task.data().train, experiment.batch_size
    step = plain(experiment.task.build_model(), data.features(slice(batch)), data.y[:batch])

    def loop() -> None:
        """Take all steps."""
        for _ in range(steps):
            step()

    return timed(loop)


if __name__ == "__main__":
    typer.run(main)
