"""Decisions by a cut-off of a person's own, in place of an even one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from simulations.fitting.fit_folder import Story
from simulations.fitting.save import is_fit
from simulations.results.classifier import TrainedClassifier


def decided_from(rows: pd.DataFrame, cut_off: float, folder: Path, classifier: TrainedClassifier, stability: bool
                 ) -> pd.DataFrame:
    """Return rows with predictions in which the favourable class is decided for from a probability on.

    Args:
        rows: Rows with predictions (`simulations.results.classifier.with_predictions`).
        cut_off: The probability, between 0 and 1.
        folder: Folder of the model.
        classifier: The model.
        stability: Whether stability is asked for as well, which is that of an even cut-off.

    Raises:
        ValueError: If the cut-off is no probability between 0 and 1, the folder holds no fit of two classes, or
            stability is asked for.
    """
    if not 0 < cut_off < 1:
        raise ValueError(f"cut-off is {cut_off:g}: give a probability between 0 and 1, for example --cut-off 0.3")
    if not is_fit(folder) or len(classifier.labels) != 2 or classifier.threshold:
        raise ValueError(f"{folder} holds no fit of two classes: a cut-off is for the favourable one of them")
    if stability:
        raise ValueError("stability is that of decisions at a cut-off of 0.5: leave out --stability or --cut-off")
    favourable = Story.read(folder).favourable
    other = next(label for label in classifier.labels if label != favourable)
    return rows.assign(predicted=np.where(rows[f"P({favourable})"] >= cut_off, favourable, other))
