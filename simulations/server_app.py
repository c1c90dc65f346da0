"""The Flower ServerApp: what `flwr run .` starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import conduct
from simulations.plans.compare import experiments
from simulations.results.outcome import outcome_of
from simulations.results.table import results_table
from simulations.settings.experiment import Experiment
from simulations.settings.run_config import read

app = ServerApp()
log = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment of the run config, save it, and end the log with its table.

    A run that was stopped goes on after its last checkpoint in the folder `out`.
    Raises `ValueError`, `OSError` or `fedfair.node.node.ClientError` with one sentence saying what is wrong.
    """
    experiment, (of_the_run, _) = from_run_config(context.run_config), read(context.run_config)
    folder = Path(of_the_run.out or f"fedfair-results/{context.run_id}").absolute()
    checkpoint = Checkpoint(folder, experiment.settings(), of_the_run.checkpoint_every)
    checkpoint.read()
    result = conduct(experiment, grid, lambda done, rounds: None, checkpoint)
    result.save(folder)
    text = StringIO()
    Console(file=text, width=80).print(results_table(outcome_of([result])))
    log.info("Results are in %s", folder)
    for line in text.getvalue().rstrip().splitlines():
        log.info("%s", line.rstrip())


def from_run_config(config: Mapping[str, Any]) -> Experiment:
    """Return the experiment that a Flower run config describes (see `simulations.settings.run_config`).

    Raises `SettingsError`, or `ValueError` for text that is not key=value.
    """
    of_the_run, settings = read(config)
    strategy, seed = str(settings.pop("strategy", "dpsgd")), int(settings.pop("seed", 0))
    return experiments([strategy], [seed], of_the_run.preset, settings)[0]
