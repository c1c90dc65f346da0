"""What `fedfair predict` says of new rows beside the decision: how sure it is, and another by a cut-off of one's own.

A decision is sure as far as it would stay the same, were the noise of privacy drawn anew.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedfair.datasets.features.encoder import encode
from fedfair.datasets.features.new_rows import read_new
from simulations.fitting.fit_folder import Story
from simulations.fitting.save import is_fit
from simulations.results.classifier import TrainedClassifier
from simulations.results.front_files import read_front, read_refits, taken

STABILITY = "stability"
"""Column of predictions."""


def draws_of(folder: Path, run: str | None, classifier: TrainedClassifier) -> Tensor:
    """Return what fits with fresh noise add to the weights of a folder's model, of the second class: `[draws, d]`.

    Args:
        folder: Folder of a fit.
        run: Run of a comparison; None if only one has a front.
        classifier: Its model.

    Raises:
        FileNotFoundError: If the folder holds no front.
        ValueError: If it does not hold what noise does to it.
    """
    name, _, weights = read_front(folder, run)
    found = read_refits(folder, name)
    if found is None:
        raise ValueError(f"{folder} does not say what noise does to its model, so that nothing is known of its "
                         "stability: `fedfair fit` does so for two classes and moments; leave --stability out")
    return found.draws[:, taken(weights, classifier.model)]


def with_stability(classifier: TrainedClassifier, frame: pd.DataFrame, draws: Tensor) -> pd.DataFrame:
    """Add to rows how probable it is that a fit with fresh noise decides alike, from .5 to 1: "stability".

    The difference of the scores moves by the noise of both fits, which is normal. Bins, and the choice of the model,
    are taken as they are.

    Args:
        classifier: Model of two classes that was trained on a table.
        frame: Rows with the columns of the training table, with predictions or without.
        draws: What fits with fresh noise add to the weights of the second class, `[draws, d]`.

    Raises:
        ValueError: If the rows have such a column already, or cannot be read.
    """
    if STABILITY in frame:
        raise ValueError(f"the rows have a column {STABILITY!r} already: give it another name")
    read, _ = read_new(frame, classifier.encoding, classifier.unreadable)  # what is to be said, predictions said
    rows = torch.as_tensor(encode(read, classifier.encoding))
    with torch.no_grad():
        scores = classifier.model(rows.to(next(classifier.model.parameters()).dtype)).double()
    moved = 2 * math.sqrt(2) * (rows.double() @ draws.T).std(1)
    apart = (scores[:, 1] - scores[:, 0]).abs()
    alike = torch.special.ndtr(apart / moved.clamp(min=torch.finfo(torch.float64).tiny))
    return frame.assign(**{STABILITY: alike.numpy().round(4)})


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
