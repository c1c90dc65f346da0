"""What an experiment will have released once it has ended, known before it runs."""

from __future__ import annotations

from fedfair.accounting import Ledger
from simulations.engines.engines import make_engine
from simulations.settings.experiment import Experiment
from strategies import find_strategy
from strategies.server.preprocessing import planned
from strategies.server.requests import population
from strategies.server.state import charge_held_out


def planned_ledger(experiment: Experiment) -> Ledger:
    """Return the ledger of all rounds, with the noise that is fixed in advance.

    Its `epsilon` is that of the finished run, or more where the run keeps to a budget. Where its guarantee is "nominal"
    it may be less: noise that stays at the base clip norm is planned for that norm, whatever norms come. Reads the
    data, but trains nothing. Raises `ValueError` or `OSError` where the experiment could not begin.
    """
    sizes = make_engine("local")(lambda grid: population(grid, experiment.task))
    strategy = find_strategy(experiment.strategy)(experiment.task, experiment.training, sizes,
                                                  preprocessing=planned(experiment.task, experiment.training))
    if strategy.rounds:
        for event, steps, first in strategy.plan(0).charges(sizes.sizes):
            strategy.ledger.record(event, steps * strategy.rounds, first)
        charge_held_out(strategy)
    return strategy.ledger
