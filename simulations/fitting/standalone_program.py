"""A fit's model as a plain Python program, which needs neither fedfair nor any other package."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from fedfair.datasets.columns import cell, quantities
from fedfair.datasets.columns.convention import MISSING, band_names
from fedfair.datasets.features.encoding import OTHER
from fedfair.datasets.features.new_rows import columns_of
from fedfair.datasets.files import plain_rows
from simulations.fitting import shipped_program
from simulations.fitting.fit_folder import Story
from simulations.results.environment import installed

_SHIPPED = (quantities, cell, plain_rows, shipped_program)
"""Files that the program holds, in their order: they need the standard library alone."""

_TOP = '''"""Scorecard of {name}, written by fedfair {version}: epsilon {epsilon} at delta {delta}.

    python predict.py ROWS.csv        prints the rows of a CSV file with the column "predicted"

Cells are read as they were for the training. A number that cannot be read ends the program with 2 and a sentence,
unless --unreadable missing is given; what counts as missing or as another category is said on stderr.
"""

from __future__ import annotations
'''


def program(story: Story) -> str:
    """Return the program of a fit's model."""
    top = _TOP.format(name=story.name.replace('"', "'").replace("\\", "/"), version=installed("fedfair"),
                      epsilon=f"{story.epsilon:.4g}", delta=f"{story.ledger.delta:g}")
    own = f"MODEL: dict[str, Any] = json.loads({json.dumps(described(story))!r})"
    text = top + "\n\n".join(_own_source(module) for module in _SHIPPED)
    return re.sub(r"^MODEL: .*$", lambda _: own, text, count=1, flags=re.MULTILINE)


def described(story: Story) -> dict[str, Any]:
    """Return a fit's model as JSON holds it: its classes, how cells are read, and what each adds to the scores."""
    numbers, categories, constant = tables(story)
    description = story.description
    columns = [{name: sorted(value) if isinstance(value, frozenset) else value
                for name, value in column._asdict().items()} for column in columns_of(description.encoding)]
    scores = {**categories, **{name: {"ends": ends, "bins": bins, "missing": missing}
                               for name, (ends, bins, missing) in numbers.items()}}
    return {"classes": list(description.labels), "constant": constant, "columns": columns, "scores": scores,
            "encoding": story.config.get("encoding")}


def _own_source(module: ModuleType) -> str:
    """Return the source of a module without the statements that import what the program holds already."""
    text = inspect.getsource(module)
    text = re.sub(r"^from (fedfair|__future__)[^\n(]*(\([^)]*\)|[^\n]*)\n", "", text, flags=re.MULTILINE)
    return f"\n{text}"


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


def _of_bands(scores: Mapping[str, Scores], ends: Sequence[float], none: Scores) -> tuple[list[float], list[Scores],
                                                                                          Scores]:
    """Return what a number's bands add, which are categories in the model."""
    other = scores.get(OTHER, none)
    return list(ends), [scores.get(name, other) for name in band_names(ends)], scores.get(MISSING, other)
