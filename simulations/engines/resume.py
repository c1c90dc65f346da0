"""Training from the latest checkpoint, if there is one, with a new checkpoint whenever one is due."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedfair.protocol.messages import unpacked
from simulations.engines.checkpoint import Checkpoint
from strategies import Strategy
from strategies.server.state import charge_lost_round, restore, state

_STEPS, _EPOCHS = 100, 1  # default number of rounds between checkpoints, at least
_PAUSE = 50  # default pause until the next one, in times that the latest took: writes grow with the run

Watch = Callable[[Strategy, int], None]
"""Called with the strategy and the round's number at the end of every round."""


def train(strategy: Strategy, grid: Grid, arrays: ArrayRecord, checkpoint: Checkpoint | None = None,
          watch: Watch = lambda strategy, now: None) -> ArrayRecord:
    """Train from `arrays`, or from the latest checkpoint, and return the weights; raise what `Checkpoint` does."""
    again = strategy.training.randomness == "system"
    every = 1 if again else (checkpoint and checkpoint.every) or (_STEPS if strategy.sync == "step" else _EPOCHS)
    latest = checkpoint.read() if checkpoint else None
    latest = latest if latest and "weights" in latest[1] else None  # else preprocessing alone is done
    done, saved = latest or (0, {})
    if latest:
        arrays = restore(strategy, saved)
    if again and checkpoint:
        if latest:
            charge_lost_round(strategy, done)
        strategy.descent.hold(unpacked(arrays), strategy.training)
        checkpoint.write(done, state(strategy))

    pause = 0 if again or (checkpoint and checkpoint.every) else _PAUSE
    due = monotonic()

    def ended(now: int) -> None:
        """Write a checkpoint if it is due, then call `watch`."""
        nonlocal due
        began = monotonic()
        if checkpoint and now % every == 0 and now < strategy.rounds and began >= due:
            checkpoint.write(now, state(strategy))
            due = monotonic() + pause * (monotonic() - began)
        watch(strategy, now)

    return Resumed(strategy, done, ended).start(grid, arrays, num_rounds=strategy.rounds - done,
                                                timeout=strategy.training.answer_timeout).arrays


class Resumed(FlowerStrategy):
    """Strategy whose first `done` rounds are done; `ended` is called with a round's number at the end of every further
    round.
    """

    def __init__(self, strategy: Strategy, done: int, ended: Callable[[int], None]) -> None:
        self.strategy, self.done, self.ended = strategy, done, ended

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                        ) -> Iterable[Message]:
        """See `Strategy`."""
        return self.strategy.configure_train(self.done + server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]
                        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """See `Strategy`."""
        return self.strategy.aggregate_train(self.done + server_round, replies)

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
