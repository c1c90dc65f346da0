"""The state of a run after a round, from which it can continue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord

from fedfair.accounting import Ledger
from fedfair.accounting.log import EventLog
from fedfair.protocol.messages import pack
from strategies.server.rounds import Rounds

MOST_NOISE = 2.0
"""Times the planned noise that a round may have at most: one with more would spoil what others learned."""


def state(rounds: Rounds) -> dict[str, Any]:
    """Return all that changes from round to round, as plain values and tensors, once the method holds weights.

    The next round may change the tensors in place. What grows with the rounds is JSON: PyTorch's safe reader takes ten
    times as long for lists.
    """
    learned: dict[str, dict[str, Any]] = {}
    for part, owner, names in _learned(rounds):
        learned[part] = {name: getattr(owner, name) for name in names}
    return {
        "population": rounds.population.fingerprint, "task": rounds.task.text,
        "preprocessing": list(rounds.method.preprocessing or ()),
        "noise": rounds.method.factor, "rows": json.dumps(rounds.rows.all), **rounds.method.descent.state(),
        "log": json.dumps(rounds.ledger.log.to_dict()), "not_protected": rounds.ledger.unprotected,
        "held_out": {part: list(release) for part, release in rounds.ledger.held_out.items()},
        "learned": learned,
    }


def restore(rounds: Rounds, saved: Mapping[str, Any]) -> ArrayRecord:
    """Let a new run continue from a saved `state`, and return the weights to train on.

    Raises `ValueError` if the state belongs to other data.
    """
    refuse_other_population(saved, rounds.population.fingerprint)
    rounds.method.take_noise(saved["noise"])
    rounds.rows.all = json.loads(saved["rows"])
    rounds.method.training = type(rounds.training)(**saved["training"])
    rounds.method.descent.restore(saved, rounds.training)
    rounds.ledger.resume(EventLog.from_dict(json.loads(saved["log"])), saved["held_out"], saved["not_protected"])
    for part, owner, names in _learned(rounds):
        for name in names:
            setattr(owner, name, saved["learned"][part][name])
    return pack(saved["weights"])


def refuse_other_population(saved: Mapping[str, Any], fingerprint: int) -> None:
    """Raise `ValueError` if a saved state belongs to other data than those with a population's fingerprint."""
    if saved["population"] != fingerprint:
        raise ValueError("the checkpoint was written for other data: there are other groups, or other numbers of "
                         "records; restore the data, or take another folder")


def _learned(rounds: Rounds) -> Iterator[tuple[str, object, Sequence[str]]]:
    """Yield what else a round changes: a name for the part, its owner, and the names of the owner's attributes."""
    yield "method", rounds.method, rounds.method.state
    yield "rule", rounds.rows, ("told",)
    yield "attendance", rounds.attendance, ("rounds", "answered")
    if rounds.average.decay:
        yield "average", rounds.average, ("weights", "rounds")
    if rounds._risk is not None:
        yield "risk", rounds._risk, ("_eigenvectors",)
    if rounds.method.budget is not None:
        yield "budget", rounds.method.budget, ("spent", "left")


def charge_lost_round(rounds: Rounds, step: int) -> None:
    """Charge round `step`, which an interrupted run may have released, at the most that it can have cost.

    The run repeats the round with fresh noise and charges it again, since somebody may have seen both. Raises
    `ValueError` if a budget by group does not allow for another round.
    """
    least = rounds.method.budget.lose_step() if rounds.method.budget is not None else None
    for event, steps, first in rounds.method.plan(step).charges(rounds.population.sizes):
        rounds.ledger.record(event.in_advance(least), steps, first)
        rounds.ledger.log.rewind(first, event.client)


def keep_target(rounds: Rounds, step: int) -> bool:
    """Let round `step` and those after it have the noise by which `target_epsilon` holds, lost rounds included.

    The factor is the least for which the ledger with these rounds stays within the target, in every group. Without a
    target, and under a budget by group, which keeps itself, nothing changes.

    Returns:
        Whether the rounds are to be made; not if they would need more than `MOST_NOISE` times the noise.
    """
    method = rounds.method
    if rounds.training.target_epsilon is None or method.budget is not None:
        return True
    allowed = rounds.training.by_group("target_epsilon", rounds.population.names)

    def keeps(factor: float) -> bool:
        """Return whether so many times the noise is enough, and take it."""
        method.take_noise(factor)
        charged = _with_rounds_from(rounds, step).guaranteed_by_group().values()
        return all(spent <= most for spent, most in zip(charged, allowed, strict=True))

    least, most = 1.0, MOST_NOISE
    if keeps(least) or not keeps(most):
        return keeps(least)
    while most - least > 1e-4:
        middle = (least + most) / 2
        least, most = (least, middle) if keeps(middle) else (middle, most)
    return keeps(most)


def _with_rounds_from(rounds: Rounds, step: int) -> Ledger:
    """Return the ledger as it will be at the end, if round `step` and all after it are as this one is planned."""
    ledger = rounds.ledger.holding(EventLog.from_dict(rounds.ledger.log.to_dict()))
    for event, steps, first in rounds.method.plan(step).charges(rounds.population.sizes):
        ledger.record(event, steps * (rounds.rounds - step), first)
    if rounds.training.searches:
        ledger.record_held_out("valid", rounds.search.multiplier)
    return ledger


def charge_held_out(rounds: Rounds) -> None:
    """Charge what the end of a run releases of held-out records: the threshold search, and private figures."""
    if rounds.training.searches:
        rounds.ledger.record_held_out("valid", rounds.search.multiplier)
    if rounds.evaluation.figures is not None:
        rounds.evaluation.figures.charge(rounds.ledger)

