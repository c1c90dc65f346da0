"""What is compared with a fit's figures: each two groups with each other, and another model with the fit's.

Differences between groups follow from rates that were released, at no cost. Figures of another model, one without
privacy or an earlier, are given by a person, and no epsilon covers them. They are kept as they were given, in fit.toml,
and the page says whose they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedfair.fairness.intervals import Estimate, difference
from fedfair.fairness.metrics import ALL
from fedfair.plugins.registry import unknown
from simulations.files.saved_files import saved_table
from simulations.fitting.fit_folder import OF_ALL, Story
from simulations.results.front_files import FIGURES

COMPARED = {"positive_rate": "selection rate", "true_positive_rate": "true positive rate",
            "false_positive_rate": "false positive rate", "accuracy": "accuracy"}
"""Rates that are compared, and what they are called."""

RATES = {"accuracy": COMPARED["accuracy"], **COMPARED}
"""The same, accuracy first, as they are shown beside another model's."""

COLUMNS = ("group", "metric", "value")
"""Of a file with figures; low and high, the ends of intervals, may be there too."""


class Row(NamedTuple):
    """A figure of both models.

    Attributes:
        words: What it is called.
        group: Of whom it is, "all" for all records.
        own: That of the fit.
        other: That of the other model.
    """

    words: str
    group: str
    own: Estimate
    other: Estimate

    @property
    def given(self) -> str:
        """The other model's figure, whatever is known of its interval."""
        return f"{self.other.value:.3f}"

    @property
    def reach(self) -> str:
        """Its interval as far as it was given, "" if it was not."""
        low, high = (None if end != end else f"{end:.3f}" for end in (self.other.low, self.other.high))
        return f"{low} to {high}" if low and high else f"from {low}" if low else f"to {high}" if high else ""


def read_beside(path: Path) -> dict[str, Any]:
    """Return the figures of another model: its name, and rows of group, metric, value and perhaps low and high.

    Args:
        path: Folder of a fit, or a CSV file with the columns group, metric and value.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If columns are absent, a metric is none that is compared, a value is no share, or none of its
            interval, or a figure is there twice.
    """
    file = path / FIGURES if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file} with figures: give a CSV file with the columns "
                                f"{', '.join(COLUMNS)}, or the folder of a fit")
    table = saved_table(file, COLUMNS)
    known = {**RATES, **OF_ALL}
    rows = []
    for row in table[table["metric"].isin(known) if path.is_dir() else slice(None)].to_dict("records"):
        if row["metric"] not in known:
            raise unknown(f"metric of {file}", str(row["metric"]), known)
        given = ["value", *(end for end in ("low", "high") if _is_known(row.get(end)))]
        numbers = {name: _number(row[name], file, name) for name in given}
        rows.append({"group": str(row["group"]), "metric": str(row["metric"]), **numbers})
    if not rows:
        raise ValueError(f"{file} has none of the figures that are compared: {', '.join(known)}")
    if not path.is_dir():  # noise may move what a fit wrote
        _refuse_no_shares(rows, file)
    return {"name": path.resolve().name if path.is_dir() else path.stem, "rows": rows}


def _refuse_no_shares(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Raise `ValueError` for a figure that is not between 0 and 1, not within its interval, or there twice."""
    seen = set()
    for row in rows:
        named = f"{row['metric']} of {row['group']}"
        if not all(0 <= row[name] <= 1 for name in ("value", "low", "high") if name in row):
            raise ValueError(f"{file} has {named} outside 0 to 1: give shares, such as 0.83 for 83 %")
        if not row.get("low", 0.0) <= row["value"] <= row.get("high", 1.0):
            raise ValueError(f"{file} has {named} outside its own interval: low is at most value, and value at most "
                             "high")
        if named in seen:
            raise ValueError(f"{file} has {named} twice: leave one of them out")
        seen.add(named)


def _is_known(end: Any) -> bool:
    """Say whether an interval ends somewhere."""
    return bool(pd.notna(end)) and end not in (math.inf, -math.inf)


def _number(value: Any, file: Path, name: str) -> float:
    """Return what stands in the column `name` as a number; raise `ValueError` if it is none."""
    number = pd.to_numeric(value, errors="coerce")
    if not math.isfinite(number):
        raise ValueError(f"{file} has the {name} {value!r}: give a number, such as 0.83")
    return float(number)


def beside(story: Story) -> Sequence[Row]:
    """Return the figures of the other model beside those of a fit; none if none were given.

    Args:
        story: The fit.
    """
    given: Mapping[str, Any] = story.asked.get("beside", {})
    figures = {(row["group"], row["metric"]): Estimate(row["value"], row.get("low", math.nan),
                                                       row.get("high", math.nan)) for row in given.get("rows", ())}
    wanted = [(words, group, metric) for metric, words in RATES.items() for group in (*story.groups, ALL)]
    wanted += [(words, ALL, metric) for metric, words in OF_ALL.items() if metric not in RATES]
    return [Row(words, group, story.figure(metric, group), figures[group, metric])
            for words, group, metric in wanted if (group, metric) in figures]


def unknown_groups(story: Story) -> list[str]:
    """Return the groups of the other model's figures that the fit does not have, sorted.

    Args:
        story: The fit.
    """
    rows = story.asked.get("beside", {}).get("rows", ())
    return sorted({row["group"] for row in rows} - {*story.groups, ALL})


class Pair(NamedTuple):
    """Two groups, and by how much each rate of the first is above that of the second.

    The intervals hold with 95 %, each by itself.
    """

    first: str
    second: str
    differences: Mapping[str, Estimate]


def pairs(story: Story) -> Iterator[Pair]:
    """Yield all pairs of groups of a fit, of its model."""
    for first, second in combinations(story.groups, 2):
        yield Pair(first, second, {metric: difference(story.figure(metric, first), story.figure(metric, second))
                                   for metric in COMPARED})
