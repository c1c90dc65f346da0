"""The measures by which methods are compared: accuracy, loss, and gaps between groups.

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

import numpy as np
import pandas as pd

from fedfair.fairness.metrics import ALL, shown_in
from simulations.statistics.summary import excessive_risks, gap, privacy_costs

Pairs = Mapping[str, tuple[str, str]]
"""By data set, the two groups between which gaps are measured; otherwise a gap is the largest between any two."""

_ANY: Pairs = {}


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
