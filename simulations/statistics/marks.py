"""Marks of a comparison's figures: the best, as far as the seeds tell, and the doubtful."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import LEVEL, constant_runs
from simulations.statistics.statements import FEW, test_records

BEST, DOUBTFUL = "*", "?"


@dataclass(frozen=True)
class Marks:
    """What is marked in a table.

    Attributes:
        best: By measure, the method that the paired tests tell from every other.
        constant: Methods that predict one class in some seed.
        few: Groups with fewer than 30 test records in some seed.
    """

    best: Mapping[str, str]
    constant: frozenset[str]
    few: frozenset[str]

    def of(self, method: str, measure: str, group: str | None = None) -> str:
        """Return the mark of a method's figure: "*", "?" or nothing.

        Args:
            method: Name of the method.
            measure: Name of the measure.
            group: Group that the figure is of; None for all.
        """
        if method in self.constant or group in self.few:
            return DOUBTFUL
        return BEST if group is None and self.best.get(measure) == method else ""

    def legend(self) -> list[str]:
        """Return what the marks mean, those that are in use."""
        lines = [f"{BEST} best: told from every other method by paired tests (Holm, p < {LEVEL})"] if self.best else []
        if self.constant or self.few:
            lines.append(f"{DOUBTFUL} doubtful: a model that predicts one class in some seed, or a group with fewer "
                         f"than {FEW} test records")
        return lines


NONE = Marks({}, frozenset(), frozenset())
"""No marks."""


def marks(final: pd.DataFrame, tested: pd.DataFrame) -> Marks:
    """Return the marks of runs on one data set.

    Args:
        final: Final metrics, from `simulations.statistics.summary.final_test`.
        tested: Their tests, from `simulations.statistics.over_seeds.comparisons`.
    """
    constant = frozenset(constant_runs(measures(final)))
    few = frozenset(name for name, records in test_records(final).items() if records < FEW)
    best = {str(measure): name for measure, tests in tested.groupby("metric", sort=False)
            if (name := _best(tests, constant)) is not None}
    return Marks(best, constant, few)


def _best(tested: pd.DataFrame, constant: frozenset[str]) -> str | None:
    """Return the method that is better than every other one by the tests of a measure, or None.

    Methods that predict one class are left out.
    """
    fair = tested[~tested["better"].isin(constant) & ~tested["worse"].isin(constant)]
    for name, tests in fair.groupby("better", sort=False):
        rivals = set(fair["worse"]) - {name}
        if rivals and rivals <= set(tests.loc[tests["p_holm"] < LEVEL, "worse"]):
            return str(name)
    return None
