"""Training from the latest checkpoint, if there is one, with a new checkpoint whenever one is due.

A run with noise of the operating system's repeats no round: what may have been lost is charged, and the rounds still to
come have more noise, so that target_epsilon holds.

Private preprocessing of a run: its release is charged before it is made, and kept before anything uses it.

With randomness from the operating system, a release that is made again has other noise, and somebody may have seen
both. So a checkpoint says that a release begins. A run that finds this, and not what was learned, makes another release
and charges both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedfair.accounting.events import Preprocessed
from fedfair.protocol.messages import pack, unpacked
from fedfair.protocol.task import Task
from simulations.engines.checkpoint import Checkpoint
from strategies.server.rounds import Rounds
from strategies.server.state import (
    charge_held_out,
    charge_lost_round,
    keep_target,
    refuse_other_population,
    restore,
    state,
)

_STEPS, _EPOCHS = 100, 1  # default number of rounds between checkpoints, at least
_PAUSE = 50  # default pause until the next one, in times that the latest took: writes grow with the run

_log = logging.getLogger(__name__)

Watch = Callable[[Rounds, int], None]
"""Called with the rounds of the run and the round's number at the end of every round."""


def train(rounds: Rounds, grid: Grid, arrays: ArrayRecord, checkpoint: Checkpoint | None = None,
          watch: Watch = lambda rounds, now: None) -> ArrayRecord:
    """Train from `arrays`, or from the latest checkpoint, and return the weights; raise what `Checkpoint` does."""
    again = rounds.training.randomness == "system"
    every = 1 if again else (checkpoint and checkpoint.every) or (_STEPS if rounds.method.sync == "step" else _EPOCHS)
    latest = checkpoint.read() if checkpoint else None
    latest = latest if latest and "weights" in latest[1] else None  # else preprocessing alone is done
    done, saved = latest or (0, {})
    if latest:
        arrays = restore(rounds, saved)
    if again and checkpoint:
        rounds.method.descent.hold(unpacked(arrays), rounds.training)
        goes_on = not latest or _charged(rounds, done)
        checkpoint.write(done if goes_on else rounds.rounds, state(rounds))  # what may be lost next are figures
        if not goes_on:
            return _ended(rounds, grid)

    pause = 0 if again or (checkpoint and checkpoint.every) else _PAUSE
    due = monotonic()

    def ended(now: int) -> None:
        """Write a checkpoint if it is due, then call `watch`."""
        nonlocal due
        began = monotonic()
        if checkpoint and now % every == 0 and now < rounds.rounds and began >= due:
            checkpoint.write(now, state(rounds))
            due = monotonic() + pause * (monotonic() - began)
        watch(rounds, now)

    def trained(now: int) -> None:
        """Keep the last round before anything is released of other records, so that either can be lost alone."""
        if again and checkpoint and now == rounds.rounds:
            checkpoint.write(now, state(rounds))

    return Resumed(rounds, done, trained, ended).start(grid, arrays, num_rounds=rounds.rounds - done,
                                                       timeout=rounds.training.answer_timeout).arrays


def _charged(rounds: Rounds, done: int) -> bool:
    """Charge what may have been lost after `done` rounds; return whether others are still to come, and say if not.

    Raises `ValueError` if lost rounds have used up all before one was made.
    """
    if done == rounds.rounds:
        charge_held_out(rounds)
        return False
    charge_lost_round(rounds, done)
    goes_on, left = keep_target(rounds, done), rounds.rounds - done
    lost = f"round {done + 1} was interrupted, and may have been seen: it is charged"
    if not (goes_on or done):
        raise ValueError(f"{lost}, as others were, and target_epsilon leaves too little for the {left} still to come: "
                         "start again, in another folder, which spends as much once more")
    if not goes_on:
        _log.warning("%s, and target_epsilon leaves too little for the %d still to come: the model is that of the "
                     "rounds before", lost, left)
    elif rounds.method.factor > 1:
        _log.warning("%s, and the %d still to come have %.2f times the noise, so that target_epsilon holds", lost, left,
                     rounds.method.factor)
    return goes_on


def evaluate(rounds: Rounds, arrays: ArrayRecord, grid: Grid) -> None:
    """Evaluate a model that no further round changes.

    Args:
        rounds: The rounds, none of which is still to be made.
        arrays: Weights of the model by name.
        grid: The nodes.
    """
    asked = rounds.configure_evaluate(rounds.rounds, arrays, ConfigRecord(), grid)
    rounds.aggregate_evaluate(rounds.rounds, grid.send_and_receive(asked, timeout=rounds.training.answer_timeout))


def _ended(rounds: Rounds, grid: Grid) -> ArrayRecord:
    """Return the weights of a run of which nothing more is to be trained, after evaluating them."""
    if rounds.average.decay:
        rounds.method.descent.become(rounds.average.weights)
    rounds.method.finish()
    arrays = pack(rounds.method.descent.weights)
    evaluate(rounds, arrays, grid)
    return arrays


class Resumed(FlowerStrategy):
    """Strategy whose first `done` rounds are done; `trained` and `ended` are called with a round's number when it has
    new weights, and at its end.
    """

    def __init__(self, strategy: FlowerStrategy, done: int, trained: Callable[[int], None],
                 ended: Callable[[int], None]) -> None:
        self.strategy, self.done, self.trained, self.ended = strategy, done, trained, ended

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                        ) -> Iterable[Message]:
        """See `Strategy`."""
        return self.strategy.configure_train(self.done + server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]
                        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """See `Strategy`."""
        trained = self.strategy.aggregate_train(self.done + server_round, replies)
        self.trained(self.done + server_round)
        return trained

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                           ) -> Iterable[Message]:
        """See `Strategy`."""
        return self.strategy.configure_evaluate(self.done + server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """See `Strategy`; the end of a round."""
        metrics = self.strategy.aggregate_evaluate(self.done + server_round, replies)
        self.ended(self.done + server_round)
        return metrics

    def summary(self) -> None:
        """See `Strategy`."""
        self.strategy.summary()


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
