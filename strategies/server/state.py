"""The state of a run after a round, from which it can continue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord

from fedfair.accounting.log import EventLog
from fedfair.protocol.messages import pack
from strategies.server.strategy import Strategy


def state(strategy: Strategy) -> dict[str, Any]:
    """Return all that changes from round to round, as plain values and tensors, once the strategy holds weights.

    The next round may change the tensors in place. What grows with the rounds is JSON: PyTorch's safe reader takes ten
    times as long for lists.
    """
    learned: dict[str, dict[str, Any]] = {}
    for part, owner, names in _learned(strategy):
        learned[part] = {name: getattr(owner, name) for name in names}
    return {
        "population": strategy.population.fingerprint, "task": strategy.task.text,
        "preprocessing": list(strategy.preprocessing or ()),
        "rows": json.dumps(strategy.rows.all), **strategy.descent.state(),
        "log": json.dumps(strategy.ledger.log.to_dict()), "not_protected": strategy.ledger.unprotected,
        "held_out": {part: list(release) for part, release in strategy.ledger.held_out.items()},
        "learned": learned,
    }


def restore(strategy: Strategy, saved: Mapping[str, Any]) -> ArrayRecord:
    """Let a new strategy continue from a saved `state`, and return the weights to train on.

    Raises `ValueError` if the state belongs to other data.
    """
    refuse_other_population(saved, strategy.population.fingerprint)
    strategy.rows.all = json.loads(saved["rows"])
    strategy.training = type(strategy.training)(**saved["training"])
    strategy.descent.restore(saved, strategy.training)
    strategy.ledger.resume(EventLog.from_dict(json.loads(saved["log"])), saved["held_out"], saved["not_protected"])
    for part, owner, names in _learned(strategy):
        for name in names:
            setattr(owner, name, saved["learned"][part][name])
    return pack(saved["weights"])


def refuse_other_population(saved: Mapping[str, Any], fingerprint: int) -> None:
    """Raise `ValueError` if a saved state belongs to other data than those with a population's fingerprint."""
    if saved["population"] != fingerprint:
        raise ValueError("the checkpoint was written for other data: there are other groups, or other numbers of "
                         "records; restore the data, or take another folder")


def _learned(strategy: Strategy) -> Iterator[tuple[str, object, Sequence[str]]]:
    """Yield what else a round changes: a name for the part, its owner, and the names of the owner's attributes."""
    yield "method", strategy, strategy.state
    yield "rule", strategy.rows, ("told",)
    yield "attendance", strategy.attendance, ("rounds", "answered")
    if strategy.average.decay:
        yield "average", strategy.average, ("weights", "rounds")
    if strategy._risk is not None:
        yield "risk", strategy._risk, ("_eigenvectors",)
    if strategy.budget is not None:
        yield "budget", strategy.budget, ("spent", "left")


def charge_lost_round(strategy: Strategy, step: int) -> None:
    """Charge round `step`, which an interrupted run may have released, at the most that it can have cost.

    With the last round this also charges what follows it. The run repeats the round with fresh noise and charges
    it again, since somebody may have seen both. Raises `ValueError` if a budget by group does not allow for another
    round.
    """
    least = strategy.budget.lose_step() if strategy.budget is not None else None
    for event, steps, first in strategy.plan(step).charges(strategy.population.sizes):
        strategy.ledger.record(event.in_advance(least), steps, first)
        strategy.ledger.log.rewind(first, event.client)
    if step == strategy.rounds - 1:
        charge_held_out(strategy)


def charge_held_out(strategy: Strategy) -> None:
    """Charge what the end of a run releases of held-out records: the threshold search, and private figures."""
    if strategy.training.searches:
        strategy.ledger.record_held_out("valid", strategy.search.multiplier)
    if strategy.evaluation.figures is not None:
        strategy.evaluation.figures.charge(strategy.ledger)

