"""Apply a saved model to the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedfair.datasets.table import group_names
from simulations.results.classifier import TrainedClassifier


def predict(folder: Path, frame: pd.DataFrame, run: str | None = None, group: Sequence[str] = ()) -> pd.DataFrame:
    """Add a saved model's predictions to the rows of a table.

    Args:
        folder: Folder of a finished run or comparison.
        frame: Rows with the columns of the training table.
        run: Run of a comparison, for example "dpsgd/seed-0"; None if there is only one.
        group: Columns that name each row's group, for a model with a threshold; by default those of the run.

    Returns:
        The rows, with the column "predicted", a class's name, and a column "P(name)" for each class: its probability,
            to which no threshold is applied.

    Raises:
        FileNotFoundError: If the folder holds no model.
        ValueError: If the model was not trained on rows of a table, if rows have such columns already, or if a
            threshold needs groups and they are missing; and for what `TrainedClassifier` refuses.
    """
    classifier = TrainedClassifier.load(folder, run)
    if not classifier.encoding.features:
        raise ValueError(f"the model in {folder} was trained on records that are not rows of a table: give their "
                         "arrays to simulations.results.classifier.TrainedClassifier")
    columns = [*(group or classifier.group_columns)] if classifier.threshold else []
    if classifier.threshold and not columns:
        raise ValueError("the model's decisions depend on the group: pass --group COLUMN, or the argument group")
    numbers = classifier.predict(frame, group_names(frame, columns, classifier.encoding.reading) if columns else None)
    chances = classifier.predict_proba(frame)
    added = {"predicted": np.array(classifier.labels)[numbers],
             **{f"P({label})": chances[:, number] for number, label in enumerate(classifier.labels)}}
    for name in added:
        if name in frame:
            raise ValueError(f"the rows have a column {name!r} already: give it another name")
    return frame.assign(**added)
