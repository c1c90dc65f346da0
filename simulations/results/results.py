"""The runs of a comparison, in a list that notebooks show as tables."""

from __future__ import annotations

from simulations.results.measured import Measured
from simulations.results.notebook import runs_html
from simulations.results.result import Result, identified
from simulations.results.statements import favourable_class


class Results(list[Result]):
    """A list of finished runs."""

    def _repr_html_(self) -> str:
        """Show tables and findings of each data set, for notebooks."""
        datasets = dict.fromkeys(result.experiment.dataset for result in self)
        parts = [_shown([result for result in self if result.experiment.dataset == name]) for name in datasets]
        return "\n".join(parts) or "<p>no runs</p>"


def _shown(results: list[Result]) -> str:
    """Show the runs on one data set."""
    first, ledgers = results[0], {(r.experiment.dataset, r.experiment.strategy, r.experiment.seed): r.ledger
                                  for r in results}
    return runs_html(Measured(identified(results), ledgers, first.group_sizes),
                     [favourable_class(first.experiment, first.data)])
