"""What a saved model says of the rows of a table."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedfair.datasets.columns import tidied
from fedfair.datasets.table import whole_numbers
from fedfair.registry import unknown
from simulations.trained import TrainedClassifier


def predict(folder: Path, frame: pd.DataFrame, group: Sequence[str] = ()) -> pd.DataFrame:
    """The rows, with the columns "predicted", a class's name, and "P(name)" for each class, in which no threshold has
    a part.

    With a threshold, the columns `group` name each row's group; by default they are those of the run in `folder`.
    Raises what `TrainedClassifier` raises, and `ValueError` for a model of other records than rows of a table, and for
    rows that have such columns already, or no group.
    """
    classifier = TrainedClassifier.load(folder)
    if not classifier.encoding.features:
        raise ValueError(f"the model in {folder} was trained on records that are not rows of a table: give their "
                         "arrays to simulations.trained.TrainedClassifier")
    groups = _groups(frame, group or _of_the_run(folder)) if classifier.threshold else None
    numbers, chances = classifier.predict(frame, groups), classifier.predict_proba(frame)
    added = {"predicted": np.array(classifier.labels)[numbers],
             **{f"P({label})": chances[:, number] for number, label in enumerate(classifier.labels)}}
    for name in added:
        if name in frame:
            raise ValueError(f"the rows have a column {name!r} already: give it another name")
    return frame.assign(**added)


def _of_the_run(folder: Path) -> list[str]:
    """The columns that named the groups of a run on a file; raises `ValueError` for a run on other data."""
    named = tomllib.loads((folder / "config.toml").read_text()).get("group")
    if not named:
        raise ValueError("the model's decisions hang on the group: say by group which column names it")
    return [name.strip() for name in named.split(",")]


def _groups(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The name of each row's group, as the values in some columns make it; raises `ValueError` if one is not there."""
    for name in columns:
        if name not in frame:
            raise unknown("column", name, map(str, frame.columns))
    neat = tidied(frame[list(columns)])
    return [" & ".join(values) for values in zip(*(whole_numbers(neat[name]).astype(str) for name in columns),
                                                 strict=True)]
