"""What a run has come to after a round, so that it can stop there and go on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord

from fedfair.accounting.log import EventLog
from fedfair.protocol.messages import pack
from strategies.server.strategy import Strategy


def state(strategy: Strategy) -> dict[str, Any]:
    """All that changes from round to round, as plain values and tensors, once the strategy holds weights; the next
    round may change them.

    What grows with the rounds is JSON: PyTorch's reader of what may be untrusted takes ten times as long for lists.
    """
    return {
        "population": strategy.population.fingerprint, "rows": json.dumps(strategy.rows.all),
        **strategy.descent.state(),
        "log": json.dumps(strategy.ledger.log.to_dict()), "not_protected": strategy.ledger.unprotected,
        "searched": strategy.ledger.validation and strategy.ledger.validation.multiplier,
        "learned": {part: {name: getattr(owner, name) for name in names} for part, owner, names in _learned(strategy)},
    }


def restore(strategy: Strategy, saved: Mapping[str, Any]) -> ArrayRecord:
    """Let a new strategy go on from a saved `state`; returns the weights to train on.

    Raises `ValueError` if the state belongs to other data.
    """
    if saved["population"] != strategy.population.fingerprint:
        raise ValueError("the checkpoint was written for other data: there are other groups, or other numbers of "
                         "records; restore the data, or take another folder")
    strategy.rows.all = json.loads(saved["rows"])
    strategy.training = type(strategy.training)(**saved["training"])
    strategy.descent.restore(saved, strategy.training)
    strategy.ledger.log = EventLog.from_dict(json.loads(saved["log"]))
    strategy.ledger.unprotected = dict(saved["not_protected"])
    if saved["searched"] is not None:
        strategy.ledger.record_search(saved["searched"])
    for part, owner, names in _learned(strategy):
        for name in names:
            setattr(owner, name, saved["learned"][part][name])
    return pack(saved["weights"])


def _learned(strategy: Strategy) -> Iterator[tuple[str, object, Sequence[str]]]:
    """Whatever else a round changes: a name for it, its owner, and the owner's attributes."""
    yield "method", strategy, strategy.state
    yield "rule", strategy.rows, ("told",)
    if strategy._risk is not None:
        yield "risk", strategy._risk, ("_eigenvectors",)
    if strategy.budget is not None:
        yield "budget", strategy.budget, ("spent", "left")


def charge_lost_round(strategy: Strategy, step: int) -> None:
    """Charge round `step`, which an interrupted run may have released, at the most that it can have cost.

    With the last round this also charges the threshold search. The run makes the round again, from other random
    numbers, and charges it again: somebody may have seen both. Raises `ValueError` if a budget by group does not allow
    for another one.
    """
    least = strategy.budget.lose_step() if strategy.budget is not None else None
    for event, steps, first in strategy.plan(step).charges(strategy.population.sizes):
        strategy.ledger.record(event.in_advance(least), steps, first)
        strategy.ledger.log.rewind(first, event.client)
    if step == strategy.rounds - 1 and strategy.training.searches:
        strategy.ledger.record_search(strategy.search.multiplier)
