"""References: the strategies that others are measured against, on the same data set and seed."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

REFERENCE = "sgd"
REFERENCES = {"fedavg": "fedavg", "dp-fedavg": "fedavg"}
"""References of strategies with local epochs: their optimisation differs, and so does their reference."""


def is_reference(strategy: str) -> bool:
    """Return whether other strategies are measured against this one.

    Args:
        strategy: Name of a strategy, alone or with its folder's, "sgd (longer)".

    Returns:
        True for a reference.
    """
    return strategy.partition(" ")[0] in (REFERENCE, *REFERENCES.values())


def reference(strategy: str, strategies: Collection[str]) -> str:
    """Return the strategy that a strategy is measured against.

    Args:
        strategy: Name of a strategy, alone or with its folder's, "dpsgd (longer)".
        strategies: Names of all strategies.

    Returns:
        `REFERENCE`, or the strategy's entry in `REFERENCES`; with the folder's name, "sgd (longer)", if that is among
            `strategies`.
    """
    method, _, folder = strategy.partition(" ")
    plain = REFERENCES.get(method, REFERENCE)
    of_folder = f"{plain} {folder}"
    return of_folder if of_folder in strategies else plain


def against_reference(final: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Subtract each run's reference from it, on the same data set and seed.

    Args:
        final: Final metrics, from `final_part`.
        metric: Name of the metric.

    Returns:
        A row for each run and a column for each group; not a number where the reference did not run.
    """
    values = final.loc[:, final.columns.get_level_values("metric") == metric].droplevel("metric", axis=1)
    strategies = values.index.unique("strategy")
    same_run = pd.MultiIndex.from_tuples([(dataset, reference(strategy, strategies), seed)
                                          for dataset, strategy, seed in values.index], names=values.index.names)
    return pd.DataFrame(values.to_numpy() - values.reindex(same_run).to_numpy(), values.index, values.columns)


def privacy_costs(final: pd.DataFrame) -> pd.DataFrame:
    """Compute by how much each run's accuracy is below its reference's.

    Args:
        final: Final metrics, from `final_part`.

    Returns:
        A table as from `against_reference`.
    """
    return -against_reference(final, "accuracy")


def excessive_risks(final: pd.DataFrame) -> pd.DataFrame:
    """Compute by how much each run's loss is above its reference's.

    Args:
        final: Final metrics, from `final_part`.

    Returns:
        A table as from `against_reference`.
    """
    return against_reference(final, "loss")
