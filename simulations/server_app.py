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
from simulations.results.table import results_table
from simulations.settings.experiment import Experiment
from simulations.settings.settings_text import pairs, parsed

app = ServerApp()
log = logging.getLogger("flwr")

_LISTS, _OF_THE_RUN = ("split", "pixels", "without", "ranges", "hidden", "deprived"), ("out", "checkpoint-every")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment of the run config, save it, and end the log with its table.

    The folder is the key `out`, by default fedfair-results/RUN-ID in the folder in which the SuperLink was started. A
    run that was stopped goes on after its last checkpoint there (every `checkpoint-every` rounds).
    Raises `ValueError`, `OSError` or `fedfair.node.node.ClientError` with one sentence saying what is wrong.
    """
    experiment = from_run_config(context.run_config)
    folder = Path(str(context.run_config.get("out") or f"fedfair-results/{context.run_id}")).absolute()
    every = int(context.run_config.get("checkpoint-every") or 0) or None
    checkpoint = Checkpoint(folder, experiment.settings(), every)
    checkpoint.read()
    result = conduct(experiment, grid, lambda done, rounds: None, checkpoint)
    result.save(folder)
    text = StringIO()
    Console(file=text, width=80).print(results_table([result]))
    log.info("Results are in %s", folder)
    for line in text.getvalue().rstrip().splitlines():
        log.info("%s", line.rstrip())


def from_run_config(config: Mapping[str, Any]) -> Experiment:
    """The experiment that a Flower run config describes: the fields with dashes, "" for those not set.

    `options` is text, "key=value key=value"; `split`, `pixels`, `without`, `hidden` and `deprived` are lists in text,
    "[64, 32]", and `ranges` is a table, "{age = [17, 90]}". Raises `SettingsError`.
    """
    given = {key.replace("-", "_"): value for key, value in config.items() if value != "" and key not in _OF_THE_RUN}
    settings = {key: parsed(value) if key in _LISTS and isinstance(value, str) else value
                for key, value in given.items()}
    strategy, preset = str(settings.pop("strategy", "dpsgd")), settings.pop("preset", None)
    settings["options"] = pairs(str(settings.get("options", "")).split())
    return experiments([strategy], [int(settings.pop("seed", 0))], preset, settings)[0]
