"""New rows for `fedfair predict`: how their files are read, how sure a decision is, and another by one's own cut-off.

A file is read as that of the training was, where it does not say itself how it is written. A decision is sure as far
as it would stay the same, were the noise of the training drawn anew.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedfair.datasets.columns.convention import ALL, Asked
from fedfair.datasets.columns.tidy import with_columns
from fedfair.datasets.features.encoder import encode
from fedfair.datasets.features.new_rows import read_new
from fedfair.datasets.files.estimate import WHOLE, announce
from fedfair.datasets.files.part_files import folder_values, part_files
from fedfair.datasets.files.plain_rows import plain_rows
from fedfair.datasets.files.row_file import refuse_nested
from fedfair.datasets.files.table_file import is_text, read_table
from fedfair.datasets.files.text_file import text_of
from fedfair.datasets.files.workbook import refuse_uncomputed
from fedfair.plugins.text_values import read_toml
from simulations.fitting.fit_folder import Story
from simulations.fitting.save import is_fit
from simulations.results.classifier import TrainedClassifier
from simulations.results.front_files import read_front, read_refits, taken

STABILITY = "stability"
"""Column of predictions."""


def rows_of(path: Path, encoding: str | None, folder: Path, classifier: TrainedClassifier) -> pd.DataFrame:
    """Return the rows of a file, or of all files of a folder or a pattern, whose names of folders may be columns.

    Args:
        path: File, folder or pattern.
        encoding: Name of the encoding of text; None for that of its byte order mark, UTF-8, or the training's.
        folder: Folder of the model.
        classifier: The model, which says which columns are numbers.

    Raises:
        ValueError: For a file without a column that the model needs, or that cannot be read (`read_table`,
            `plain_rows`); for one of several also for a cell that must be a number and is none.
    """
    files = part_files(path)
    announce(path, files or [path], WHOLE)
    if path.is_file() or not files:
        return _rows(path, encoding, folder, classifier, classifier.columns)
    parts = []
    for file in files:
        values = folder_values(file, path)
        read = _rows(file, encoding, folder, classifier, [name for name in classifier.columns if name not in values])
        more = {name: pd.Series(value, read.index, dtype="str") for name, value in values.items() if name not in read}
        parts.append(with_columns(read, more))
        try:
            read_new(parts[-1], classifier.encoding, classifier.unreadable)  # so that a refusal names file and row
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
    return pd.concat(parts, ignore_index=True)


def _rows(file: Path, encoding: str | None, folder: Path, classifier: TrainedClassifier, needed: list[str]
          ) -> pd.DataFrame:
    """Return the rows of a file, which must have the columns that are needed.

    Where they are not in UTF-8, they are in the encoding of the training's file, and where a workbook has a title, its
    names are in the row of the training's workbook.
    """
    if not is_text(file):
        reading = classifier.encoding.reading
        asked = Asked(encoding=encoding, numeric=tuple(classifier.numbers),
                      decimal=((ALL, reading.decimal), *reading.exceptions))
        try:
            frame = read_table(file, asked).frame
        except ValueError:
            row = _of_the_training(folder, "header_row")
            if row is None:
                raise
            frame = read_table(file, replace(asked, header_row=int(row))).frame
        refuse_nested(file, needed)
        refuse_uncomputed(file, needed)
        return frame
    try:
        text = text_of(file, encoding)
    except ValueError:
        name = None if encoding else _of_the_training(folder, "encoding")
        if name is None:
            raise
        text = text_of(file, str(name))
    with text.open() as lines:
        names, rows = plain_rows(lines, needed, str(file))
    return pd.DataFrame(rows, columns=names, dtype=str)


def _of_the_training(folder: Path, setting: str) -> Any:
    """Return a setting of the run or the comparison in a folder; None if it is not there, or at its default."""
    config = folder / "config.toml"
    if not config.is_file():
        return None
    written = read_toml(config)
    settings = written.get("settings", written)
    return settings.get(setting) if isinstance(settings, dict) else None


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
