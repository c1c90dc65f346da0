"""Runs on one data set with what is computed of them: tables of the last round, tests, and which figures are marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from fedfair.accounting import Ledger
from simulations.statistics.marks import Marks, marks
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import comparisons
from simulations.statistics.statements import statements
from simulations.statistics.summary import final_test, summarise


@dataclass(frozen=True)
class Measured:
    """Runs on one data set; each table is computed once.

    Attributes:
        metrics: Long table of all runs, with columns dataset, strategy and seed.
        ledgers: Ledgers by (dataset, strategy, seed).
        sizes: Training records by group.
    """

    metrics: pd.DataFrame
    ledgers: Mapping[tuple[str, str, int], Ledger]
    sizes: dict[str, int]

    @cached_property
    def final(self) -> pd.DataFrame:
        """Metrics after the last round, see `simulations.statistics.summary.final_test`."""
        return final_test(self.metrics)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """A row for each method, see `simulations.statistics.summary.summarise`."""
        return summarise(self.metrics, self.ledgers)

    @cached_property
    def tests(self) -> pd.DataFrame:
        """Paired tests between the methods."""
        return comparisons(measures(self.final))

    @cached_property
    def marks(self) -> Marks:
        """The best and the doubtful."""
        return marks(self.final, self.tests)

    def statements(self) -> list[str]:
        """Return what is found, in sentences: models that predict one class first."""
        return statements(self.final, self.tests, self.summary, self.sizes, self.ledgers.values())
