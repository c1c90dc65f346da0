"""A fit over nodes that each keep their file: the server has a schema, and gets sums and counts with noise.

Ranges, categories, groups and classes are the schema's, which is public, so nothing is spent on them. The nodes send
their moments, a few gradients, and counts of decisions for the choice and the figures. All of it carries noise before
the server can read it: each node adds all of it (trust local), or masks hide its sums (secure aggregation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfair.accounting import Release, epsilon, multiplier_of
from fedfair.mechanisms.noise import Trust
from fedfair.protocol.record_settings import NODES
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.engines import Engine, make_engine
from simulations.engines.run import run
from simulations.fitting.budget import Needed, chosen_delta, divided, needed
from simulations.fitting.columns import refuse_classes
from simulations.fitting.fit import Fitted, Wanted, settings_of
from simulations.results.result import Result
from simulations.settings.deployment import DEPLOYMENT
from simulations.settings.experiment import Experiment
from strategies.server.replies.requests import population

_OWN: Mapping[str, Any] = {"strategy": "moments", "features": "binned", "model": "linear", "partition": NODES,
                           "figures": "private", "sampling_rate": 1.0}
"""Settings that make a run a fit over nodes."""


def fit_nodes(wanted: Wanted, engine: str | Engine, folder: Path | None = None) -> Fitted:
    """Train, choose and measure within one epsilon, on records that stay with their nodes.

    Args:
        wanted: What is asked; it names no table.
        engine: Where the nodes are.
        folder: Where a checkpoint is kept, so that a fit that was stopped goes on and charges what may be lost; None
            for none.

    Raises:
        ValueError: If a setting cannot be used.
        fedfair.node.node.ClientError: If a node does not answer, or its file is not like the schema.
        OSError: If the checkpoint cannot be written.
    """
    made = Experiment(**{**_settings(wanted), "target_epsilon": wanted.epsilon})
    _refuse_trusted_server(made)
    nodes = make_engine(engine)
    sizes = nodes(lambda grid: population(grid, made.task, made.answer_timeout))
    refuse_classes(made, sizes.classes, wanted.gap, wanted.monotone)
    delta = chosen_delta(wanted.delta, math.ceil(sizes.records / made.split[0]))  # about the records of all parts
    budget = divided(wanted.epsilon, delta, made.accountant, has_unknown=False)
    planned = Experiment(**{**_settings(wanted), "delta": delta, "target_epsilon": budget.target_epsilon,
                            "figures_epsilon": budget.figures_epsilon})
    wanted.charge(delta)
    result = run(planned, nodes, checkpoint=Checkpoint(folder, planned.settings()) if folder else None)
    assert result.nodes is not None
    return Fitted(replace(wanted, delta=delta), result, (), _needed(planned, result), nodes=len(result.nodes))


def _needed(planned: Experiment, result: Result) -> Needed | None:
    """Return what would be enough for the features of a run, whose sum holds the noise of every client."""
    assert result.nodes is not None
    assert planned.target_epsilon is not None
    copies = math.sqrt(int(result.nodes["sites"].sum())) if planned.trust is Trust.LOCAL else 1.0
    noise = copies * multiplier_of(planned.target_epsilon, planned.delta, planned.accountant)
    return needed(int(result.nodes["records"].sum()), result.data.train.x.shape[1], noise,
                  lambda multiplier: epsilon({Release(1.0, multiplier / copies): 1}, planned.delta, planned.accountant))


def _settings(wanted: Wanted) -> dict[str, Any]:
    """Return the settings of the run, but for its budget; raise `ValueError` for one that a fit makes itself."""
    trust = Trust.DISTRIBUTED if wanted.settings.get("secure_aggregation") else Trust.LOCAL
    settings = {"mode": DEPLOYMENT, "trust": trust.value, **wanted.settings}
    return settings_of(replace(wanted, settings=settings), _OWN)


def _refuse_trusted_server(made: Experiment) -> None:
    """Raise `ValueError` if the server would see sums without all of their noise: epsilon would not hold for it."""
    if made.trust is not Trust.LOCAL and not made.secure_aggregation:
        raise ValueError(f"trust is {made.trust.value!r}, so that the server would see sums of single nodes without "
                         "all of their noise, but a fit over nodes keeps its epsilon against the server too: leave "
                         "trust out, or take secure_aggregation = true")
