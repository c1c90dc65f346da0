"""Gaps between groups that a person names, from figures by group that have been released: at no cost in privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from fedfair.fairness.group_gaps import gaps, places_of
from fedfair.fairness.intervals import UNKNOWN, Estimate, quantile, records, widened
from fedfair.fairness.metrics import ALL
from fedfair.fairness.noisy_figures import CONFIDENCE


def with_gaps_among(figures: pd.DataFrame, named: Sequence[str]) -> pd.DataFrame:
    """Return figures whose gaps are those among some groups.

    The intervals of rates hold with 95 %. Where several must hold together, they are as much wider as intervals of a
    normal distribution would be.

    Args:
        figures: Columns point, split, group, metric, value, low and high; the ends of intervals may be unknown.
        named: Names of two groups or more.

    Raises:
        ValueError: If there is no such group, or fewer than two are named.
    """
    groups = [str(name) for name in figures["group"].unique() if name != ALL]
    chosen = places_of(named, groups)
    if len({*named}) < max(2, len(named)):
        raise ValueError(f"gap_among is {', '.join(named) or 'empty'}: name two groups or more, each once")
    made = [_with_gaps(rows, groups, chosen) for _, rows in figures.groupby(["point", "split"], sort=False)]
    whole = pd.concat(made, ignore_index=True)
    return whole.assign(low=math.nan, high=math.nan) if figures["low"].isna().all() else whole


def _with_gaps(rows: pd.DataFrame, groups: Sequence[str], chosen: Sequence[int]) -> pd.DataFrame:
    """Return the figures of one classifier on one part with other gaps; those that are unknown are left out."""
    own = {(str(row["group"]), row["metric"]): Estimate(row["value"], row["low"], row["high"]) for row in records(rows)}
    rates = [partial(_rate, own, group) for group in groups]
    found = dict(gaps(rates, {metric for _, metric in own}, CONFIDENCE, chosen))
    kept = rows[~((rows["group"] == ALL) & rows["metric"].isin(found))]
    told = [kept.iloc[0].to_dict() | {"group": ALL, "metric": name} | gap._asdict()
            for name, gap in found.items() if not math.isnan(gap.value)]
    return pd.concat([kept, pd.DataFrame(told, columns=rows.columns)]) if told else kept


def _rate(own: Mapping[tuple[str, str], Estimate], group: str, metric: str, z: float) -> Estimate:
    """Return a figure of a group with an interval of so many deviations."""
    return widened(own.get((group, metric), UNKNOWN), z / quantile(CONFIDENCE)).within(0, 1)
