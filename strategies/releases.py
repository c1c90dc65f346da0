"""What a round releases about the records of each group: the entries of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fedfair.accounting import Event, spent_multipliers
from fedfair.mechanisms.clipping import ClipRule
from fedfair.protocol.round import Round
from strategies.server.calibration import count_noise

if TYPE_CHECKING:
    from strategies.server.strategy import Strategy


class Released(NamedTuple):
    """`steps` equal events, from step `first` on."""

    event: Event
    steps: int
    first: int


def released(strategy: Strategy, plan: Round, rule: ClipRule) -> Iterator[Released]:
    """The events of one round: one step over all clients, or a local epoch of each; clients hold disjoint records."""
    counting = strategy.query() is not None
    if plan.local is None:
        counts = count_noise(strategy.training, strategy.noise[0]) if counting else None
        fixed, spent = strategy.group_multipliers(rule, plan.noise_multiplier)
        certain = _before_counts(strategy, fixed) if strategy.counts_first else None
        yield Released(Event(plan.rates, fixed, spent, counts, certain_multipliers=certain), 1, plan.step)
        return
    bounds = rule.group_sensitivities(len(strategy.population.names))
    each = zip(strategy.population.sizes, strategy.schedules(), strategy.noise, strict=True)
    for client, (sizes, schedule, noise) in enumerate(each):
        if schedule.steps == 0:
            continue
        rates = tuple(schedule.rate if size else 0.0 for size in sizes)
        spent = spent_multipliers(noise, bounds)
        counts = count_noise(strategy.training, noise) if counting else None
        steps = schedule.steps // max(strategy.rounds, 1)
        yield Released(Event(rates, (noise,) * len(bounds), spent, counts, client), steps, plan.step * steps)


def _before_counts(strategy: Strategy, fixed: tuple[float, ...]) -> tuple[float, ...]:
    """The least noise multipliers by group that were certain before the counts of the last step were known."""
    return fixed if strategy.budget is None else tuple(map(max, fixed, strategy.budget.least))


def charge_lost_round(strategy: Strategy, step: int) -> None:
    """Enter round `step`, which a run that was interrupted may have released, at the most that it can have cost; with
    the last round, also the search for a threshold.

    The run makes the round again, from other random numbers, and enters it again: somebody may have seen both. Raises
    `ValueError` if a budget by group does not allow for another one.
    """
    least = strategy.budget.lose_step() if strategy.budget is not None else (0.0,) * len(strategy.rates())
    for event, steps, first in released(strategy, strategy.plan(step), strategy.rule()):
        spent = tuple(map(max, event.multipliers, least))
        strategy.ledger.record(replace(event, spent_multipliers=spent, certain_multipliers=None), steps, first)
        strategy.ledger.log.rewind(first, event.client)
    if step == strategy.rounds - 1 and strategy.training.searches:
        strategy.ledger.record_search(strategy.search.multiplier)
