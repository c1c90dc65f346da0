"""A fit's model as a plain Python program, which needs neither fedfair nor any other package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fedfair.datasets.columns.bands import band_names
from fedfair.datasets.columns.convention import MISSING
from fedfair.datasets.columns.missing_marks import ALWAYS
from fedfair.datasets.features.encoding import OTHER
from simulations.fitting.fit_folder import Story

_PROGRAM = '''"""Scorecard of {name}, written by fedfair {version}: epsilon {epsilon} at delta {delta}.

    python predict.py ROWS.csv        adds the column "predicted" to the rows of a CSV file

Numbers are written as Python writes them, 1234.5; what is written otherwise counts as missing.
"""

import csv
import json
import math
import sys

CLASSES = json.loads({classes!r})
CONSTANT = json.loads({constant!r})
NUMBERS = json.loads({numbers!r})
"""By column: ends between bins, the scores of each bin, and those of a missing number."""
CATEGORIES = json.loads({categories!r})
"""By column: the scores of each category."""
MARKS = frozenset(json.loads({marks!r}))
"""Texts that stand for a missing value."""


def scores(row):
    """Return the score of each class for a row, a dictionary of texts or numbers by column."""
    total = list(CONSTANT)
    for column, (ends, bins, missing) in NUMBERS.items():
        number = _number(row.get(column))
        own = missing if number is None else bins[sum(number >= end for end in ends)]
        total = [a + b for a, b in zip(total, own)]
    for column, listed in CATEGORIES.items():
        text = _text(row.get(column))
        own = listed.get({missing!r} if text in MARKS else text, listed.get({other!r}))
        if own is not None:
            total = [a + b for a, b in zip(total, own)]
    return total


def predict(row):
    """Return the class of the largest score."""
    found = scores(row)
    return CLASSES[found.index(max(found))]


def probabilities(row):
    """Return the probability of each class."""
    found = scores(row)
    powers = [math.exp(score - max(found)) for score in found]
    return {{name: power / sum(powers) for name, power in zip(CLASSES, powers)}}


def _text(value):
    """Return a category as text; "" for none."""
    if isinstance(value, float):
        value = None if math.isnan(value) else int(value) if value.is_integer() else value
    return "" if value is None else str(value).strip()


def _number(value):
    """Return a number, or None for what is none."""
    if str(value).strip() in MARKS:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


if __name__ == "__main__":
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    writer = csv.DictWriter(sys.stdout, [*rows[0], "predicted"])
    writer.writeheader()
    writer.writerows({{**row, "predicted": predict(row)}} for row in rows)
'''


def program(story: Story) -> str:
    """Return the program of a fit's model."""
    numbers, categories, constant = tables(story)
    return _PROGRAM.format(name=story.name.replace('"', "'"), version=_version(), epsilon=f"{story.epsilon:.4g}",
                           delta=f"{story.ledger.delta:g}", classes=_json(list(story.description.labels)),
                           constant=_json(constant), numbers=_json(numbers), categories=_json(categories),
                           marks=_json(marks(story)), missing=MISSING, other=OTHER)


Scores = list[float]
Numbers = dict[str, tuple[list[float], list[Scores], Scores]]
Categories = dict[str, dict[str, Scores]]


def tables(story: Story) -> tuple[Numbers, Categories, Scores]:
    """Return what each column adds: by number's bins, and by category; and what every record gets.

    Returns:
        By column ends between bins, scores of each bin, and scores of a missing number; by column scores of each
            category; and the constant.
    """
    *rows, constant = story.scorecard.filter(like="score of ").to_numpy().tolist()
    numbers: Numbers = {}
    categories: Categories = {}
    for feature, scores in zip(story.description.encoding.features, rows, strict=True):
        if feature.category is not None:
            categories.setdefault(feature.column, {})[feature.category] = scores
            continue
        ends, bins, missing = numbers.setdefault(feature.column, ([], [], [0.0] * len(scores)))
        if feature.missing:
            missing[:] = scores
            continue
        assert feature.bin is not None
        bins.append(scores)
        if feature.bin[1] is not None:
            ends.append(feature.bin[1])
    banded = {column: ends for column, ends in story.description.encoding.reading.bands if column in categories}
    for column, lowest in banded.items():
        numbers[column] = _of_bands(categories.pop(column), lowest, [0.0] * len(constant))
    return numbers, categories, constant


def marks(story: Story) -> list[str]:
    """Return the texts that stand for a missing value."""
    return sorted(ALWAYS | {*story.description.encoding.reading.missing})


def _of_bands(scores: Mapping[str, Scores], ends: Sequence[float], none: Scores) -> tuple[list[float], list[Scores],
                                                                                          Scores]:
    """Return what a number's bands add, which are categories in the model."""
    other = scores.get(OTHER, none)
    return list(ends), [scores.get(name, other) for name in band_names(ends)], scores.get(MISSING, other)


def _json(value: object) -> str:
    """Return a value as JSON, in ASCII."""
    return json.dumps(value)


def _version() -> str:
    """Return the version of fedfair."""
    from importlib.metadata import version

    return version("fedfair")
