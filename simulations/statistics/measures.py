"""The measures by which methods are compared: accuracy, loss, and gaps between groups; and which figures are marked.

A mark says that a method is the best, as far as the seeds tell, or that a figure is doubtful.

Examples:
    >>> names = ["dataset", "strategy", "seed"]
    >>> runs = pd.MultiIndex.from_tuples([("adult", "sgd", 0), ("adult", "dpsgd", 0)], names=names)
    >>> groups = pd.MultiIndex.from_product([[ALL, "a", "b", "c"], ["accuracy"]], names=["group", "metric"])
    >>> final = pd.DataFrame([[0.9, 0.9, 0.9, 0.9], [0.7, 0.8, 0.7, 0.5]], runs, groups)
    >>> measures(final)["privacy_cost_gap"].round(3).tolist()
    [0.0, 0.3]
    >>> measures(final, {"adult": ("a", "b")})["privacy_cost_gap"].round(3).tolist()
    [0.0, 0.1]
    >>> between(privacy_costs(final), {"adult": ("a", "b")}).count().to_dict()
    {'all': 0, 'a': 2, 'b': 2, 'c': 0}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedfair.fairness.metrics import ALL, shown_in
from simulations.statistics.over_seeds import LEVEL, constant_runs
from simulations.statistics.summary import excessive_risks, gap, privacy_costs

Pairs = Mapping[str, tuple[str, str]]
"""By data set, the two groups between which gaps are measured; otherwise a gap is the largest between any two."""

_ANY: Pairs = {}

BEST, DOUBTFUL = "*", "?"
FEW = 30
"""Test records below which a group's rates are doubtful."""


def measures(final: pd.DataFrame, pairs: Pairs = _ANY) -> pd.DataFrame:
    """Compute the measures of each run that are tested.

    Args:
        final: Final metrics, a row for each run, from `simulations.statistics.summary.final_test`.
        pairs: Groups between which gaps are measured; by default any two.

    Returns:
        A row for each run, with a column for each measure. Where the runs have it, `constant` says whether one class
            alone was predicted, and `majority_rate` is the accuracy of always predicting the most frequent one.
    """
    of_runs = {"privacy_cost_gap": gap(between(privacy_costs(final), pairs)),
               "excessive_risk_gap": gap(between(excessive_risks(final), pairs))}
    names = [metric.name for metric in shown_in("tests")]
    table = pd.DataFrame({name: of_runs[name] if name in of_runs else final[ALL, name] for name in names
                          if name in of_runs or (ALL, name) in final})
    if (ALL, "predicted_classes") in final:
        table["constant"] = final[ALL, "predicted_classes"] == 1
    if (ALL, "majority_rate") in final:
        table["majority_rate"] = final[ALL, "majority_rate"]
    return table


def between(by_group: pd.DataFrame, pairs: Pairs) -> pd.DataFrame:
    """Mask the values of groups that are not in the pair of their data set.

    Args:
        by_group: Values with a row for each run and a column for each group.
        pairs: Two groups by data set; other data sets keep all groups.

    Returns:
        The same table, not a number in the masked cells.
    """
    datasets = by_group.index.get_level_values("dataset")
    left_out = [[group not in pairs.get(dataset, (group,)) for group in by_group.columns] for dataset in datasets]
    return by_group.mask(np.array(left_out, dtype=bool).reshape(by_group.shape))


def test_records(final: pd.DataFrame) -> dict[str, int]:
    """Count the test records of each group: the fewest over the seeds.

    Args:
        final: Final metrics, from `simulations.statistics.summary.final_test`.

    Returns:
        Numbers by group; empty if none were kept.
    """
    groups = [group for group in final.columns.unique("group") if group != ALL and (group, "records") in final]
    return {str(group): int(final[group, "records"].fillna(0).min()) for group in groups}


test_records.__test__ = False  # type: ignore[attr-defined]  # no test for pytest


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
