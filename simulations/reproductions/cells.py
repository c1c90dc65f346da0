"""Published cells beside ours: what was measured, by how much it differs, and whether the two agree.

Whether methods come in the published order, pair by pair, where the paper prints different values.

Claims of significance, tested again: one-sided Wilcoxon signed-rank tests, paired by seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import pandas as pd

from fedfair.fairness.metrics import ALL
from simulations.reproductions.published import Published, why_missing
from simulations.statistics.measures import Pairs, between
from simulations.statistics.over_seeds import Spread, holm, spread
from simulations.statistics.summary import REFERENCE, excessive_risks, final_part, gap, privacy_costs

CHANCE = "May be chance: within two standard errors of the difference."

Values = dict[str, pd.DataFrame]
"""By metric: a row for each run (dataset, strategy, seed), a column for each group."""


def reported(metrics: pd.DataFrame, losses: str = "test") -> pd.DataFrame:
    """Return `final_part` of the test part, with the losses of the part `losses`."""
    final, other = final_part(metrics, "test"), final_part(metrics, losses)
    rest = final.loc[:, final.columns.get_level_values("metric") != "loss"]
    return rest.join(other.loc[:, other.columns.get_level_values("metric") == "loss"]).sort_index(axis=1)


def values(metrics: pd.DataFrame, pairs: Pairs, losses: str = "test") -> Values:
    """Return every metric that published cells name, from the metrics of all runs (columns dataset, strategy, seed).

    What is `reported` keeps its name; metrics of the training part are train_NAME. Against sgd of the same seed come
    privacy_cost, accuracy_change (its negative) and excessive_risk. The gaps of the first and the last are under the
    group "gap": signed between the two groups of `pairs`, or of the data; the largest between any two where there are
    more.
    """
    final, train = reported(metrics, losses), final_part(metrics, "train")
    by_metric = {
        f"{prefix}{metric}": part.loc[:, part.columns.get_level_values("metric") == metric].droplevel("metric", 1)
        for prefix, part in (("", final), ("train_", train)) for metric in part.columns.unique("metric")}
    costs, risks = privacy_costs(final), excessive_risks(final)
    by_metric |= {"privacy_cost": costs, "accuracy_change": -costs, "excessive_risk": risks}
    for metric, by_group in (("privacy_cost", costs), ("excessive_risk", risks)):
        by_metric[f"{metric}_gap"] = _gap(between(by_group, pairs)).to_frame("gap")
    return by_metric


def compared(published: Published, cells: pd.DataFrame, measured: Values) -> pd.DataFrame:
    """Return the cells with ours: columns ours, ours_deviation, ours_error, seeds, difference, difference_error,
    tolerance, agrees, note.

    `agrees` is "yes", "no" or "not run". Two numbers agree if they differ by at most two published spreads, or two of
    our standard deviations where none was published. Rounding in print, of the value and of the spread, adds to that;
    with neither a spread nor a second seed it is the only tolerance. `difference_error` is the standard error of the
    difference, of the published mean and of ours. A disagreement of at most two of them is called chance, unless a note
    explains it. Ours are in the published units. A gap between two groups is the size of the mean difference, as the
    papers define it by expectations: a mean of sizes would be larger by chance alone.
    """
    rows = [{**cell, **_compared(published, cell, measured)} for cell in cells.to_dict("records")]
    return pd.DataFrame(rows) if rows else cells


def strategy_name(published: Published, method: str) -> str:
    """Return the name of a method's runs among the metrics: "sgd" for the first sgd, which is the reference of all
    others, else the method's own.
    """
    plain = [name for name, settings in published.methods.items() if settings.get("strategy") == REFERENCE]
    return REFERENCE if method in plain[:1] else method


def _compared(published: Published, cell: Mapping[Any, Any], measured: Values) -> dict[str, Any]:
    """Return the columns that `compared` adds to one cell."""
    ours = _ours(published, cell, measured)
    if not ours or not all(map(math.isfinite, ours)):
        return {"ours": math.nan, "ours_deviation": math.nan, "ours_error": math.nan, "seeds": 0,
                "difference": math.nan, "difference_error": math.nan, "tolerance": math.nan, "agrees": "not run",
                "note": why_missing(published, cell) if ours is None else "the runs have no such number"}
    unit = 100 if cell["metric"] in published.percent else 1
    over_seeds = Spread(*(unit * value for value in spread(ours)))
    if cell["group"] == "gap":
        over_seeds = over_seeds._replace(mean=abs(over_seeds.mean))
    difference, tolerance = over_seeds.mean - float(cell["published"]), _tolerance(published, cell, over_seeds)
    error = _difference_error(published, cell, over_seeds, len(ours))
    agrees = abs(difference) <= tolerance + 1e-9
    chance = not agrees and abs(difference) <= 2 * error + _rounding(published, cell)
    notes = [note for note in published.notes if not agrees and note.concerns(cell, len(ours))]
    about_the_metric = [note for note in notes if note.metric]
    return {"ours": over_seeds.mean, "ours_deviation": over_seeds.deviation, "ours_error": over_seeds.error,
            "seeds": len(ours), "difference": difference, "difference_error": error, "tolerance": tolerance,
            "agrees": "yes" if agrees else "no",
            "note": " ".join(note.text for note in about_the_metric or notes) or (CHANCE if chance else "")}


def _gap(by_group: pd.DataFrame) -> pd.Series[float]:
    """Return the first group less the second in each row, or the largest difference if there are more than two."""
    groups = by_group.drop(columns=ALL, errors="ignore").dropna(axis=1, how="all")
    return groups.iloc[:, 0] - groups.iloc[:, 1] if groups.shape[1] == 2 else gap(groups)


def _ours(published: Published, cell: Mapping[Any, Any], measured: Values) -> list[float] | None:
    """Return our values of a cell, one for each seed; None if it was not run."""
    groups = published.groups.get(cell["dataset"], {})
    group, table = groups.get(cell["group"], cell["group"]), measured.get(cell["metric"])
    run = (cell["dataset"], strategy_name(published, cell["method"]))
    if run not in {(dataset, name) for table in measured.values() for dataset, name, _ in table.index}:
        return None
    if table is None or group not in table.columns:
        return []
    return [float(value) for value in table.loc[run, group]]


def _tolerance(published: Published, cell: Mapping[Any, Any], ours: Spread) -> float:
    """Return by how much a cell may differ and still agree."""
    if cell["spread"]:
        return 2 * _published_spread(cell) + _rounding(published, cell)
    return _rounding(published, cell) + (0.0 if math.isnan(ours.deviation) else 2 * ours.deviation)


def _difference_error(published: Published, cell: Mapping[Any, Any], ours: Spread, seeds: int) -> float:
    """Return the standard error of our mean less the published one; NaN if no deviation is known.

    Where the paper prints no deviation, its runs are taken to have ours; a single seed of ours is taken to have the
    paper's.
    """
    theirs = ours.error * math.sqrt(seeds / published.published_seeds)
    if cell["spread"]:
        theirs = _published_spread(cell) / math.sqrt(
            published.published_seeds if published.spread == "standard deviation" else 1)
    return math.hypot(theirs, theirs * math.sqrt(published.published_seeds) if seeds == 1 else ours.error)


def _published_spread(cell: Mapping[Any, Any]) -> float:
    """Return the largest spread that is printed like this one."""
    return float(cell["spread"]) + half_unit(cell["spread"])


def _rounding(published: Published, cell: Mapping[Any, Any]) -> float:
    """Return how much printing took from the published value, at most."""
    return half_unit(cell["published"]) * (2 if published.truncated else 1)


def half_unit(printed: str) -> float:
    """Return half a unit of the last digit of a printed number."""
    return 0.5 * 10.0 ** -digits(printed)


def digits(printed: str) -> int:
    """Return how many digits a printed number has after the point."""
    return len(printed.partition(".")[2])


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


class ClaimTest(NamedTuple):
    """One claim: on a data set, `better` is better than `worse` by a metric of all records, or by a gap.

    `difference` is that of the means, better less worse. `p` is that of this test alone, as papers report it; `p_holm`
    is corrected for all claims of the table together (Holm 1979).
    """

    dataset: str
    metric: str
    better: str
    worse: str
    seeds: int
    difference: float
    p: float
    p_holm: float


class Statistics(NamedTuple):
    """Results of the tests: of the paper's `claims`, and of all methods in sentences by data set (`findings`)."""

    claims: Sequence[ClaimTest] = ()
    findings: Mapping[str, Sequence[str]] = {}


def claim_tests(published: Published, every: pd.DataFrame) -> list[ClaimTest]:
    """Return the paper's claims among all tests (see `simulations.statistics.over_seeds.comparisons`)."""
    keys = ["dataset", "metric", "better", "worse"]
    tests = {tuple(row[key] for key in keys): row for row in every.to_dict("records")}
    claims = []
    for dataset, claim in product(every["dataset"].unique(), published.claims):
        for metric, better, worse in product(claim.metric, claim.better, claim.worse):
            key = (dataset, metric, strategy_name(published, better), strategy_name(published, worse))
            if key in tests:
                seeds, difference, p = (tests[key][name] for name in ("seeds", "difference", "p"))
                claims.append(ClaimTest(dataset, metric, better, worse, seeds, difference, p, 1.0))
    adjusted = holm([test.p for test in claims])
    return [test._replace(p_holm=p) for test, p in zip(claims, adjusted, strict=True)]
