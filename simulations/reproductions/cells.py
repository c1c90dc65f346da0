"""Published cells beside ours: what was measured, by how much it differs, and whether that agrees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedfair.fairness.metrics import ALL
from simulations.reproductions.published import Published, why_missing
from simulations.results.statistics import Pairs, Spread, between, spread
from simulations.results.summary import REFERENCE, excessive_risks, final_part, gap, privacy_costs

CHANCE = "May be chance: within two standard errors of the difference."

Values = dict[str, pd.DataFrame]
"""By metric: a row for each run (dataset, strategy, seed), a column for each group."""


def reported(metrics: pd.DataFrame, losses: str = "test") -> pd.DataFrame:
    """`final_part` of the test part, with the losses of the part `losses`."""
    final, other = final_part(metrics, "test"), final_part(metrics, losses)
    rest = final.loc[:, final.columns.get_level_values("metric") != "loss"]
    return rest.join(other.loc[:, other.columns.get_level_values("metric") == "loss"]).sort_index(axis=1)


def values(metrics: pd.DataFrame, pairs: Pairs, losses: str = "test") -> Values:
    """Everything that published cells speak of, from the metrics of all runs (columns dataset, strategy, seed).

    What is `reported` by its name, those of the training part as train_NAME, and against sgd of the same seed:
    privacy_cost, accuracy_change (its negative), excessive_risk, and the gaps of the first and the last under the group
    "gap": between two groups, those of `pairs` or all there are, with its sign, or else the largest between any two.
    """
    final, train = reported(metrics, losses), final_part(metrics, "train")
    found = {f"{prefix}{metric}": part.loc[:, part.columns.get_level_values("metric") == metric].droplevel("metric", 1)
             for prefix, part in (("", final), ("train_", train)) for metric in part.columns.unique("metric")}
    costs, risks = privacy_costs(final), excessive_risks(final)
    found |= {"privacy_cost": costs, "accuracy_change": -costs, "excessive_risk": risks}
    for metric, by_group in (("privacy_cost", costs), ("excessive_risk", risks)):
        found[f"{metric}_gap"] = _gap(between(by_group, pairs)).to_frame("gap")
    return found


def compared(published: Published, cells: pd.DataFrame, found: Values) -> pd.DataFrame:
    """The cells with ours: columns ours, ours_deviation, ours_error, seeds, difference, difference_error, tolerance,
    agrees, note.

    `agrees` is "yes", "no" or "not run". Two numbers agree if they differ by at most two published spreads, or two of
    our standard deviations where none was published; what printing rounds away is granted, of the value and of the
    spread. With neither spread nor second seed there is no tolerance beyond that. `difference_error` is the standard
    error of the difference, of the published mean and of ours; what disagrees by two of them at most is chance, unless
    a note says more. Ours are in the published units. A gap between two groups is the size of the mean difference, as
    the papers define it by expectations: a mean of sizes would be larger by chance alone.
    """
    rows = [{**cell, **_compared(published, cell, found)} for cell in cells.to_dict("records")]
    return pd.DataFrame(rows) if rows else cells


def strategy_name(published: Published, method: str) -> str:
    """What a method's runs are called among the metrics: its own name, or "sgd" for the first that is one, the
    reference of all.
    """
    plain = [name for name, settings in published.methods.items() if settings.get("strategy") == REFERENCE]
    return REFERENCE if method in plain[:1] else method


def _compared(published: Published, cell: Mapping[Any, Any], found: Values) -> dict[str, Any]:
    """What one cell is found to be."""
    ours = _ours(published, cell, found)
    if not ours or not all(map(math.isfinite, ours)):
        return {"ours": math.nan, "ours_deviation": math.nan, "ours_error": math.nan, "seeds": 0,
                "difference": math.nan, "difference_error": math.nan, "tolerance": math.nan, "agrees": "not run",
                "note": why_missing(published, cell) if ours is None else "the runs have no such number"}
    unit = 100 if cell["metric"] in published.percent else 1
    own = Spread(*(unit * value for value in spread(ours)))
    if cell["group"] == "gap":
        own = own._replace(mean=abs(own.mean))
    difference, tolerance = own.mean - float(cell["published"]), _tolerance(published, cell, own)
    error = _difference_error(published, cell, own, len(ours))
    agrees = abs(difference) <= tolerance + 1e-9
    chance = not agrees and abs(difference) <= 2 * error + _rounding(published, cell)
    notes = [note for note in published.notes if not agrees and note.concerns(cell, len(ours))]
    about_the_metric = [note for note in notes if note.metric]
    return {"ours": own.mean, "ours_deviation": own.deviation, "ours_error": own.error, "seeds": len(ours),
            "difference": difference, "difference_error": error, "tolerance": tolerance,
            "agrees": "yes" if agrees else "no",
            "note": " ".join(note.text for note in about_the_metric or notes) or (CHANCE if chance else "")}


def _gap(by_group: pd.DataFrame) -> pd.Series[float]:
    """The first group less the second in each row, or the largest difference if there are more than two."""
    groups = by_group.drop(columns=ALL, errors="ignore").dropna(axis=1, how="all")
    return groups.iloc[:, 0] - groups.iloc[:, 1] if groups.shape[1] == 2 else gap(groups)


def _ours(published: Published, cell: Mapping[Any, Any], found: Values) -> list[float] | None:
    """Our values of a cell, one for each seed; none if it was not run."""
    groups = published.groups.get(cell["dataset"], {})
    group, table = groups.get(cell["group"], cell["group"]), found.get(cell["metric"])
    run = (cell["dataset"], strategy_name(published, cell["method"]))
    if run not in {(dataset, name) for table in found.values() for dataset, name, _ in table.index}:
        return None
    if table is None or group not in table.columns:
        return []
    return [float(value) for value in table.loc[run, group]]


def _tolerance(published: Published, cell: Mapping[Any, Any], own: Spread) -> float:
    """By how much a cell may differ."""
    if cell["spread"]:
        return 2 * _published_spread(cell) + _rounding(published, cell)
    return _rounding(published, cell) + (0.0 if math.isnan(own.deviation) else 2 * own.deviation)


def _difference_error(published: Published, cell: Mapping[Any, Any], own: Spread, seeds: int) -> float:
    """The standard error of our mean less the published one; NaN if no deviation is known.

    Where the paper prints no deviation, its runs have ours; where we have a single seed, ours has the paper's.
    """
    theirs = own.error * math.sqrt(seeds / published.published_seeds)
    if cell["spread"]:
        theirs = _published_spread(cell) / math.sqrt(
            published.published_seeds if published.spread == "standard deviation" else 1)
    return math.hypot(theirs, theirs * math.sqrt(published.published_seeds) if seeds == 1 else own.error)


def _published_spread(cell: Mapping[Any, Any]) -> float:
    """The largest spread that is printed like this one."""
    return float(cell["spread"]) + half_unit(cell["spread"])


def _rounding(published: Published, cell: Mapping[Any, Any]) -> float:
    """What printing took away from the published value, at most."""
    return half_unit(cell["published"]) * (2 if published.truncated else 1)


def half_unit(printed: str) -> float:
    """Half a unit of the last digit of a printed number."""
    return 0.5 * 10.0 ** -digits(printed)


def digits(printed: str) -> int:
    """How many digits a printed number has behind the point."""
    return len(printed.partition(".")[2])
