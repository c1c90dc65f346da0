"""A trained model as a scikit-learn classifier, which applies its run's thresholds.

Apply a saved model to the rows of a table.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn

from fedfair.datasets.features.bounded import image_features
from fedfair.datasets.features.encoder import encode
from fedfair.datasets.features.encoding import NO_TABLE, Encoding
from fedfair.datasets.features.new_rows import Unreadable, columns_of, read_new
from fedfair.datasets.files.data_frames import no_table, table_of, table_or_array
from fedfair.datasets.grouped import Pixels
from fedfair.datasets.names import visible
from fedfair.datasets.table import group_names
from fedfair.fairness.reject_option import RejectOption, decided
from fedfair.plugins.registry import unknown
from simulations.files.saved_files import saved_weights
from simulations.results.model_metadata import Description, described
from simulations.results.result import Result

_log = logging.getLogger(__name__)


class TrainedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier that predicts classes 0, 1, ... for the rows of a table, or for an array of prepared rows.

    A `DataFrame`, or another table that `fedfair.datasets.files.data_frames.as_pandas` takes, has the columns of the
    training table. An array holds rows prepared like those of `Result.data`, or pixels if its type is uint8. With a
    `threshold`, decisions depend on the record's group. `fit` changes nothing: the model is trained.

    Args:
        model: Trained model, from rows to logits `[n, classes]`.
        groups: Names of the groups in the order of their numbers.
        labels: Names of the classes in the order of their numbers.
        threshold: Rule that decides by group; None for the class with the largest logit.
        pixels: Mean and standard deviation by which pixels are standardised, as in training.
        encoding: How the columns of a table become features.
        group_columns: Columns of a table whose values make a row's group, for a `threshold`.
        unreadable: What becomes of a cell of a table that must be a number and is none: "refuse", or "missing" where
            the model knows missing values, as that of a fit does. How many count so is logged.

    Examples:
        >>> from simulations import Experiment, run
        >>> result = run(Experiment(strategy="dpsgd", steps=2, hidden=(4,), accountant="rdp"))
        >>> rows = result.data.test.x.numpy()
        >>> classifier = TrainedClassifier.of(result).fit(rows)
        >>> classifier.predict_proba(rows).shape, len(classifier.classes_)
        ((359, 10), 10)
        >>> loaded = TrainedClassifier.load(result.save("my-run"))
        >>> bool((loaded.predict(rows) == classifier.predict(rows)).all())
        True
    """

    def __init__(self, model: nn.Module, groups: Sequence[str], labels: Sequence[str],
                 threshold: RejectOption | None = None, pixels: Sequence[float] = (0.0, 1.0),
                 encoding: Encoding = NO_TABLE, group_columns: Sequence[str] = (),
                 unreadable: Unreadable = "refuse") -> None:
        self.model, self.groups, self.labels, self.threshold = model, groups, labels, threshold
        self.pixels, self.encoding, self.group_columns, self.unreadable = pixels, encoding, group_columns, unreadable

    @staticmethod
    def of(result: Result) -> TrainedClassifier:
        """Return the model of a run, with its threshold if it has one.

        Args:
            result: Result of the run.
        """
        return _described(result.model, result.description)

    @staticmethod
    def load(folder: str | Path, run: str | None = None) -> TrainedClassifier:
        """Load the model of a folder that `Result.save` or `save_comparison` wrote.

        It needs no data; a model of your own needs the file that defines it.

        Args:
            folder: Folder of a finished run or comparison.
            run: Run of a comparison, for example "dpsgd/seed-0"; None if there is only one.

        Raises:
            FileNotFoundError: If the folder holds no model.
            ValueError: If the folder holds several runs and `run` is None, or no such run; or if the model does not fit
                its file.
        """
        file = Path(folder) / "model.safetensors"
        if not file.is_file():
            raise FileNotFoundError(f"there is no model.safetensors in {folder}: give the folder of a finished run")
        with saved_weights(file) as saved:
            runs = saved.metadata() or {}
            if not runs:
                raise ValueError(f"{file} does not describe its weights: give a folder that fedfair wrote")
            if run is None and len(runs) > 1:
                raise ValueError(f"{folder} holds several runs: choose one with run, out of "
                                 f"{', '.join(sorted(runs))}")
            name = next(iter(runs)) if run is None else run
            if name not in runs:
                raise unknown("run", name, runs)
            weights = {key.removeprefix(f"{name}/"): saved.get_tensor(key) for key in saved.keys()  # noqa: SIM118
                       if "/" not in key or key.startswith(f"{name}/")}
        about = described(runs[name], file)
        return _described(about.build(weights), about)

    @property
    def classes_(self) -> NDArray[np.int64]:
        """Numbers of the classes, for scikit-learn."""
        return np.arange(len(self.labels))

    @property
    def columns(self) -> list[str]:
        """Names of the columns that rows of a table must have; none if the model was not trained on a table."""
        return [column.name for column in columns_of(self.encoding)]

    @property
    def numbers(self) -> list[str]:
        """Names of those that must hold numbers."""
        return [column.name for column in columns_of(self.encoding) if column.known is None]

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: ArrayLike, y: ArrayLike | None = None) -> TrainedClassifier:
        """Change nothing: the model is trained.

        Args:
            x: Ignored.
            y: Ignored.
        """
        return self

    def predict_proba(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the model's probabilities; no threshold is applied.

        Args:
            x: Table or array of n rows.

        Returns:
            Probabilities `[n, classes]`.
        """
        return np.asarray(self._output(table_or_array(x)).double().softmax(1))

    def predict(self, x: ArrayLike, sensitive_features: Sequence[Any] | None = None) -> NDArray[np.int64]:
        """Predict the class of each row.

        Args:
            x: Table or array of n rows.
            sensitive_features: Names of the rows' groups, `[n]`; only a threshold needs them. By default they come from
                the `group_columns` of a table.

        Returns:
            Numbers of the classes, `[n]`.

        Raises:
            ValueError: If a threshold needs the groups and they are not given, or if it decides on a row by its group,
                which is missing (None) or not a group's; the message says which row.
        """
        x = table_or_array(x)
        output = self._output(x)
        if self.threshold is None:
            return np.asarray(output.argmax(1))
        if sensitive_features is None and isinstance(x, pd.DataFrame) and self.group_columns:
            sensitive_features = group_names(x, self.group_columns, self.encoding.reading)
        if sensitive_features is None:
            raise ValueError("decisions depend on the group: give sensitive_features, the name of each record's group, "
                             f"out of {', '.join(self.groups)}")
        return np.asarray(decided(self.threshold, output, list(sensitive_features), self.groups))

    def prepared(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Return the rows of a table as the model takes them, and log what counts as missing or as another category.

        Args:
            frame: Rows with the columns of the training table; others are not looked at.

        Returns:
            Features `[n, features]`.

        Raises:
            ValueError: If a column is absent, or a cell cannot be read; the message says which column and row.

        Examples:
            >>> from simulations import Experiment, run
            >>> rows = pd.DataFrame({"years": range(400), "sex": ["f", "m"] * 200, "hired": [0, 1, 0, 0] * 100})
            >>> made = Experiment(csv=rows, label="hired", group="sex", steps=5, hidden=(4,), batch_size=50)
            >>> TrainedClassifier.of(run(made)).prepared(rows.head(3)).shape
            (3, 1)
        """
        rows, said = read_new(table_of(frame), self.encoding, self.unreadable)
        for sentence in said:
            _log.warning("%s", visible(sentence))
        return np.asarray(encode(rows, self.encoding))

    def _output(self, x: ArrayLike) -> Tensor:
        """Return the model's logits `[n, classes]`."""
        like, (mean, deviation) = next(self.model.parameters()), self.pixels
        rows = torch.as_tensor(self.prepared(x) if isinstance(x, pd.DataFrame) and self.encoding.features
                               else _array(x, self.encoding), device=like.device)
        if not len(rows):  # not every model can be given none
            return like.detach().new_zeros(0, len(self.labels)).cpu()
        if rows.dtype == torch.uint8:
            rows = (image_features(rows, self.encoding.images) if self.encoding.images else
                    Pixels(mean, deviation, like.dtype).scaled(rows))
        with torch.no_grad():
            return self.model(rows.to(like.dtype) if rows.is_floating_point() else rows).cpu()  # type: ignore[no-any-return]


def _array(given: Any, encoding: Encoding) -> NDArray[Any]:
    """Return prepared rows as an array; raise `ValueError` for what holds no numbers, or is no such array.

    Args:
        given: Array in place of a table.
        encoding: How the columns of a table become features; one without features of a model that had no table.
    """
    rows = np.asarray(given)
    if rows.dtype.kind not in "biuf":
        raise no_table(given)
    width = len(encoding.features) + (encoding.bounding is not None)
    if encoding.features and len(rows) and rows.shape[1:] != (width,):
        raise ValueError(f"the rows are an array of shape {list(rows.shape)}, but prepared rows have {width:,} "
                         "features: give a table with the columns that the model was trained on, or what `prepared` "
                         "returns")
    return rows


def _described(model: nn.Module, about: Description) -> TrainedClassifier:
    """Make a classifier of a model and its description."""
    return TrainedClassifier(model, **{name: getattr(about, name) for name in (
        "groups", "labels", "threshold", "pixels", "encoding", "group_columns")})


def predict(folder: Path, frame: pd.DataFrame, run: str | None = None, group: Sequence[str] = (),
            unreadable: Unreadable = "refuse") -> pd.DataFrame:
    """Add a saved model's predictions to the rows of a table.

    Args:
        folder: Folder of a finished run or comparison.
        frame: Rows with the columns of the training table, as `fedfair.datasets.files.data_frames.as_pandas` takes
            them.
        run: Run of a comparison, for example "dpsgd/seed-0"; None if there is only one.
        group: Columns that name each row's group, for a model with a threshold; by default those of the run.
        unreadable: What becomes of a cell that must be a number and is none; see `TrainedClassifier`.

    Returns:
        The rows, with the column "predicted", a class's name, and a column "P(name)" for each class: its probability,
            to which no threshold is applied.

    Raises:
        FileNotFoundError: If the folder holds no model.
        ValueError: If the model was not trained on rows of a table, if rows have such columns already, or if a
            threshold needs groups and they are missing; and for what `TrainedClassifier` refuses.

    Examples:
        >>> from simulations import Experiment, run
        >>> people = pd.DataFrame({"years": [1, 3, 5, 7, 9] * 4, "sex": ["f", "m"] * 10, "hired": [0, 0, 1, 1] * 5})
        >>> people.to_csv("people.csv", index=False)
        >>> settings = {"csv": "people.csv", "label": "hired", "group": "sex", "batch_size": 4, "steps": 2}
        >>> result = run(Experiment(**settings, strategy="sgd", model="logistic"))
        >>> predict(result.save("my-run"), people.head(2)).columns.tolist()
        ['years', 'sex', 'hired', 'predicted', 'P(0)', 'P(1)']
    """
    classifier = TrainedClassifier.load(folder, run)
    classifier.unreadable = unreadable
    if not classifier.encoding.features:
        raise ValueError(f"the model in {folder} was trained on records that are not rows of a table: give their "
                         "arrays to simulations.results.classifier.TrainedClassifier")
    return with_predictions(classifier, frame, group)


def with_predictions(classifier: TrainedClassifier, frame: pd.DataFrame, group: Sequence[str] = ()) -> pd.DataFrame:
    """Add predictions to the rows of a table; see `predict`.

    Args:
        classifier: Model that was trained on a table.
        frame: Rows with the columns of the training table.
        group: Columns that name each row's group, for a model with a threshold; by default those of the run.

    Raises:
        ValueError: As `predict` does.
    """
    frame = table_of(frame)
    columns = [*(group or classifier.group_columns)] if classifier.threshold else []
    if classifier.threshold and not columns:
        raise ValueError("the model's decisions depend on the group: pass --group COLUMN, or the argument group")
    names = group_names(frame, columns, classifier.encoding.reading) if columns else None
    rows = classifier.prepared(frame)
    numbers, chances = classifier.predict(rows, names), classifier.predict_proba(rows)
    added = {"predicted": np.array(classifier.labels)[numbers],
             **{f"P({label})": chances[:, number] for number, label in enumerate(classifier.labels)}}
    for name in added:
        if name in frame:
            raise ValueError(f"the rows have a column {name!r} already: give it another name")
    return frame.assign(**added)
