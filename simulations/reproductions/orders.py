"""Whether methods come in the published order, pair by pair, where the paper prints different values."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import pandas as pd


class Order(NamedTuple):
    """The methods of one data set by one metric of one group, from the lowest value, as published and as ours.

    `pairs` counts those whose published values differ, `same` those of them that we find in the same order; `turned`
    are the others, as (lower in the paper, higher in the paper). `apart` counts the pairs that differ by more than two
    of both their published spreads together, `same_apart` those of them in the same order.
    """

    dataset: str
    metric: str
    group: str
    published: tuple[str, ...]
    ours: tuple[str, ...]
    pairs: int
    same: int
    turned: tuple[tuple[str, str], ...]
    apart: int
    same_apart: int


def orders(cells: pd.DataFrame, metrics: tuple[str, ...]) -> list[Order]:
    """Return the orders of all data sets by each of the metrics, among the cells that were run."""
    ran = cells[(cells["agrees"] != "not run") & cells["metric"].isin(metrics)]
    keys = ["dataset", "metric", "group"]
    return [_order(rows) for _, rows in ran.groupby(keys, sort=False) if len(rows) > 1]


def _order(rows: pd.DataFrame) -> Order:
    """Return the order of one data set's methods by one metric of one group."""
    dataset, metric, group = (str(rows[name].iloc[0]) for name in ("dataset", "metric", "group"))
    published = dict(zip(rows["method"], rows["published"].astype(float), strict=True))
    ours = dict(zip(rows["method"], rows["ours"], strict=True))
    differing = [(a, b) if published[a] < published[b] else (b, a) for a, b in combinations(published, 2)
                 if published[a] != published[b]]
    turned = tuple((low, high) for low, high in differing if not ours[low] < ours[high])
    spreads = {method: float(spread or 0) for method, spread in zip(rows["method"], rows["spread"], strict=True)}
    apart = [(low, high) for low, high in differing
             if published[high] - published[low] > 2 * math.hypot(spreads[low], spreads[high])]
    return Order(dataset, metric, group, tuple(sorted(published, key=published.__getitem__)),
                 tuple(sorted(ours, key=ours.__getitem__)), len(differing), len(differing) - len(turned), turned,
                 len(apart), len(set(apart) - set(turned)))
