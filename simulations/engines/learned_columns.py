"""Private preprocessing of a run: its release is charged before it is made, and kept before anything uses it.

With randomness from the operating system, a release that is made again has other noise, and somebody may have seen
both. So a checkpoint says that a release begins. A run that finds this, and not what was learned, makes another release
and charges both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fedfair.accounting.events import Preprocessed
from fedfair.protocol.task import Task
from simulations.engines.checkpoint import Checkpoint
from strategies.server.state import refuse_other_population


class Begun(NamedTuple):
    """Where private preprocessing stands.

    Attributes:
        charged: What its releases are charged, that which is still to be made included.
        task: The task with what was learned; None if nothing was kept.
    """

    charged: Preprocessed
    task: Task | None = None


def begun(spent: Preprocessed, delta: float, population: int, checkpoint: Checkpoint | None) -> Begun:
    """Return where a checkpoint says that private preprocessing stands.

    Args:
        spent: What one release is charged.
        delta: The run's.
        population: Fingerprint of the records' public numbers, which the checkpoint must share.
        checkpoint: The run's checkpoint, or None.

    Raises:
        ValueError: For a checkpoint of other data, or if releases that were lost have used up delta; and what
            `Checkpoint.read` raises.
    """
    latest = checkpoint.read() if checkpoint else None
    if latest is None:
        return Begun(spent)
    saved = latest[1]
    refuse_other_population(saved, population)
    charged = Preprocessed(*saved["preprocessing"])
    if saved["task"]:
        return Begun(charged, Task.model_validate_json(saved["task"]))
    both = spent.with_another(charged)
    if both.delta >= delta:
        raise ValueError(f"private preprocessing was interrupted again and again, and its lost releases have used up "
                         f"delta, {delta:g}: nothing more can be released of these records at this delta")
    return Begun(both)


def learned_once(learn: Callable[[], Task], charged: Preprocessed, population: int, checkpoint: Checkpoint | None
                 ) -> Task:
    """Make the release, and return the task with what was learned.

    Args:
        learn: Makes the release.
        charged: What it is charged, with those that were lost.
        population: Fingerprint of the records' public numbers.
        checkpoint: Where both are kept; None if nothing is, or if a release that is made again is the same one.

    Raises:
        OSError: If the checkpoint cannot be written; and what `learn` raises.
    """
    kept: dict[str, Any] = {"population": population, "preprocessing": list(charged), "task": ""}
    if checkpoint:
        checkpoint.write(0, kept)
    task = learn()
    if checkpoint:
        checkpoint.write(0, {**kept, "task": task.text})
    return task
