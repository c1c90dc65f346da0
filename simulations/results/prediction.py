"""What a saved model says of the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedfair.datasets.table import group_names
from simulations.results.classifier import TrainedClassifier


def predict(folder: Path, frame: pd.DataFrame, run: str | None = None, group: Sequence[str] = ()) -> pd.DataFrame:
    """The rows, with the columns "predicted", a class's name, and "P(name)" for each class, in which no threshold has
    a part.

    `run` is one of a comparison's, "dpsgd/seed-0". With a threshold, the columns `group` name each row's group, by
    default those of the run. Raises what `TrainedClassifier` raises, and `ValueError` for a model of other records than
    rows of a table, and for rows that have such columns already, or no group.
    """
    classifier = TrainedClassifier.load(folder, run)
    if not classifier.encoding.features:
        raise ValueError(f"the model in {folder} was trained on records that are not rows of a table: give their "
                         "arrays to simulations.results.classifier.TrainedClassifier")
    columns = [*(group or classifier.group_columns)] if classifier.threshold else []
    if classifier.threshold and not columns:
        raise ValueError("the model's decisions hang on the group: say by group which column names it")
    numbers = classifier.predict(frame, group_names(frame, columns) if columns else None)
    chances = classifier.predict_proba(frame)
    added = {"predicted": np.array(classifier.labels)[numbers],
             **{f"P({label})": chances[:, number] for number, label in enumerate(classifier.labels)}}
    for name in added:
        if name in frame:
            raise ValueError(f"the rows have a column {name!r} already: give it another name")
    return frame.assign(**added)
