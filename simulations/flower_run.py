"""What `simulations.server_app` does once its environment is known to be fit: one run, saved, with its table."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid
from rich.console import Console, RenderableType

from fedfair.protocol.record_settings import NODES
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.engines import Connected
from simulations.engines.ray_workers import refuse_dead
from simulations.engines.run import conduct
from simulations.engines.superlink import described, flwr_run, mend, stale, superlink_of_this_process
from simulations.fitting.fit import Wanted
from simulations.plans.compare import experiments
from simulations.results.result import compared
from simulations.results.terminal_table import results_table
from simulations.settings.experiment import Experiment, SettingsError
from simulations.settings.presets import suited
from simulations.settings.run_config import OPENING, read, read_fit

log = logging.getLogger("flwr")


def serve(grid: Grid, context: Context) -> None:
    """Run the experiment or the fit of the run config, save it, and end the log with its table.

    Raises:
        ValueError: With one sentence that says what is wrong.
        OSError: If a file, or the Ray cluster of the SuperLink, cannot be used.
        fedfair.node.node.ClientError: If a node cannot answer.
    """
    _name_superlink()
    log.info("%s", given_in(context.run_config))
    of_the_run, _ = read(context.run_config)
    folder = Path(of_the_run.out or f"fedfair-results/{context.run_id}").absolute()
    wanted = wanted_of(context.run_config)
    table = _run(grid, context.run_config, folder) if wanted is None else _fit(grid, wanted, folder)
    text = StringIO()
    Console(file=text, width=80).print(table)
    log.info("Results are in %s", folder)
    for line in text.getvalue().rstrip().splitlines():
        log.info("%s", line.rstrip())


def given_in(config: Mapping[str, Any]) -> str:
    """Say what a run config sets: Flower drops pairs with blanks around their = without a word.

    Args:
        config: Values by key, "" for those that are not set.

    Examples:
        >>> given_in({"steps": 3, "delta": "", "strategy": "dpsgd"})
        "The run config sets steps=3 strategy='dpsgd', and nothing else: write KEY=VALUE without blanks"
    """
    told = " ".join(f"{key}={value!r}" for key, value in config.items() if value != "")
    return f"The run config sets {told or 'nothing'}, and nothing else: write KEY=VALUE without blanks"


def _run(grid: Grid, config: Mapping[str, Any], folder: Path) -> RenderableType:
    """Run the experiment of a run config, save it in a folder, and return its table."""
    experiment = experiment_of(config)
    checkpoint = Checkpoint(folder, experiment.settings(), read(config)[0].checkpoint_every)
    checkpoint.read()
    result = conduct(experiment, grid, lambda done, rounds: None, checkpoint)
    result.save(folder)
    return results_table(compared([result]))


def _fit(grid: Grid, wanted: Wanted, folder: Path) -> RenderableType:
    """Fit over the nodes of a grid, save the fit in a folder, and return what it tells."""
    from simulations.fitting.card import story_table
    from simulations.fitting.of_nodes import fit_nodes
    from simulations.fitting.save import refuse_fit, save  # here, with drawings, which runs do without
    from simulations.report.page import page_folder

    refuse_fit(folder)
    for package in ("simulations.fitting", "simulations.report"):
        page_folder(package)  # before anything is released
    return story_table(save(fit_nodes(wanted, Connected(grid=grid), folder), folder))


def wanted_of(config: Mapping[str, Any]) -> Wanted | None:
    """Return the fit that a Flower run config asks for; None for one that asks for a run.

    Raises `SettingsError`, or `ValueError` for text that is not key=value.
    """
    asked, (of_the_run, settings) = read_fit(config), read(config)
    if not asked.fit:
        return None
    if of_the_run.preset not in (None, OPENING["preset"]):
        raise SettingsError(f"preset is {of_the_run.preset!r}, but fit is true, and a fit makes its own settings: "
                            "leave preset out")
    for name in ("dataset", "strategy", "options"):  # the first two are what `flwr run .` runs where nothing is given
        if settings.get(name) in (OPENING.get(name), {}):
            settings.pop(name, None)
    own = {"schema_file": asked.schema_, **settings}
    return Wanted(None, "", "", asked.epsilon, own.pop("delta", None), asked.gap, asked.constraint, own)


def experiment_of(config: Mapping[str, Any]) -> Experiment:
    """Return the experiment that a Flower run config describes (see `simulations.settings.run_config`).

    The preset of a run config in which nothing is set is for digits; records of nodes' own files get settings that
    suit them in its place.

    Raises `SettingsError`, or `ValueError` for text that is not key=value.
    """
    of_the_run, settings = read(config)
    strategy, seed = str(settings.pop("strategy", "dpsgd")), int(settings.pop("seed", 0))
    opening = settings.get("partition") == NODES and of_the_run.preset == OPENING["preset"]
    preset = None if opening else of_the_run.preset
    return experiments([strategy], [seed], preset, suited(settings, preset, [strategy]) if opening else settings)[0]


def _name_superlink() -> None:
    """Say which SuperLink of `flwr run` runs this, and in what it is stale.

    Raises `FileNotFoundError` if it has no folder to run in, and `ConnectionError` if its Ray cluster has died.
    """
    link, asking = superlink_of_this_process(), flwr_run()
    if link is None:
        return  # a deployment
    log.info("Run by %s", described(link))
    found = stale(link, asking) if asking else []
    if found:
        log.warning("That SuperLink is stale: %s. To mend it, %s", "; ".join(found), mend(link))
    if link.folder is None:
        raise FileNotFoundError(f"the SuperLink's folder, in which results are saved, is gone: {mend(link)}")
    refuse_dead(None)
