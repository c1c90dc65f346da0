"""A trained model as a scikit-learn classifier, which applies the thresholds that were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import safe_open
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn

from fedfair.datasets.encoder import encode
from fedfair.datasets.encoding import NO_TABLE, Encoding
from fedfair.datasets.grouped import Pixels
from fedfair.datasets.table import group_names
from fedfair.fairness.reject_option import RejectOption
from fedfair.plugins.registry import unknown
from simulations.results.model_metadata import Description
from simulations.results.result import Result


class TrainedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts classes 0, 1, ..., which are called `labels`, for the rows of a table or for rows prepared already.

    A `DataFrame` has the columns of the table that was trained on; `encoding` says what becomes of them. An array is
    prepared like those of `Result.data`; of bytes, it holds pixels, standardised with the mean and the deviation
    `pixels`, as they were for training. `groups` are the groups' names in the order of their numbers. With a
    `threshold`, the decision hangs on the record's group: on what stands in the `group_columns` of a table, unless
    `predict` is told. `fit` changes nothing: the model is trained.
    """

    def __init__(self, model: nn.Module, groups: Sequence[str], labels: Sequence[str],
                 threshold: RejectOption | None = None, pixels: Sequence[float] = (0.0, 1.0),
                 encoding: Encoding = NO_TABLE, group_columns: Sequence[str] = ()) -> None:
        self.model, self.groups, self.labels, self.threshold = model, groups, labels, threshold
        self.pixels, self.encoding, self.group_columns = pixels, encoding, group_columns

    @staticmethod
    def of(result: Result) -> TrainedClassifier:
        """The model of a run, with its threshold if it has one."""
        return _described(result.model, result.description)

    @staticmethod
    def load(folder: str | Path, run: str | None = None) -> TrainedClassifier:
        """The model of a folder that `Result.save` wrote, or of one `run` of a comparison's, "dpsgd/seed-0"; needs no
        data, but of a model of your own its file.

        Raises `FileNotFoundError` if there is none, and `ValueError` where runs are to be told apart.
        """
        file = Path(folder) / "model.safetensors"
        if not file.is_file():
            raise FileNotFoundError(f"there is no model.safetensors in {folder}: give the folder of a finished run")
        with safe_open(str(file), "pt") as saved:
            runs = saved.metadata() or {}
            if not runs:
                raise ValueError(f"{file} does not say what its weights are of: give a folder that fedfair wrote")
            if run is None and len(runs) > 1:
                raise ValueError(f"{folder} holds several runs: say by run which is meant, out of "
                                 f"{', '.join(sorted(runs))}")
            name = next(iter(runs)) if run is None else run
            if name not in runs:
                raise unknown("run", name, runs)
            weights = {key.removeprefix(f"{name}/"): saved.get_tensor(key) for key in saved.keys()  # noqa: SIM118
                       if "/" not in key or key.startswith(f"{name}/")}
        described = Description.model_validate_json(runs[name])
        return _described(described.build(weights), described)

    @property
    def classes_(self) -> NDArray[np.int64]:
        """The numbers of the classes, for scikit-learn."""
        return np.arange(len(self.labels))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: ArrayLike, y: ArrayLike | None = None) -> TrainedClassifier:
        """Nothing: the model is trained."""
        return self

    def predict_proba(self, x: ArrayLike) -> NDArray[np.float64]:
        """The model's probabilities `[n, classes]`; no threshold has a part in them."""
        return np.asarray(self._output(x).double().softmax(1))

    def predict(self, x: ArrayLike, sensitive_features: Sequence[Any] | None = None) -> NDArray[np.int64]:
        """Classes `[n]`; `sensitive_features` `[n]` are the groups' names, which a threshold needs.

        Raises `ValueError` if it needs them and they are not to be had, or for a name that is not a group's.
        """
        output = self._output(x)
        if self.threshold is None:
            return np.asarray(output.argmax(1))
        if sensitive_features is None and isinstance(x, pd.DataFrame) and self.group_columns:
            sensitive_features = group_names(x, self.group_columns)
        if sensitive_features is None:
            raise ValueError("the decision hangs on the group: give sensitive_features, the name of each record's "
                             f"group, out of {', '.join(self.groups)}")
        numbers = {name: number for number, name in enumerate(self.groups)}
        for name in map(str, sensitive_features):
            if name not in numbers:
                raise unknown("group", name, self.groups)
        group = torch.tensor([numbers[str(name)] for name in sensitive_features], dtype=torch.long)
        return np.asarray(self.threshold.predict(output, group))

    def _output(self, x: ArrayLike) -> Tensor:
        """The model's logits `[n, classes]`."""
        like, (mean, deviation) = next(self.model.parameters()), self.pixels
        rows = torch.as_tensor(encode(x, self.encoding) if isinstance(x, pd.DataFrame) and self.encoding.features
                               else np.asarray(x), device=like.device)
        rows = Pixels(mean, deviation, like.dtype).scaled(rows) if rows.dtype == torch.uint8 else rows
        with torch.no_grad():
            return self.model(rows.to(like.dtype) if rows.is_floating_point() else rows).cpu()  # type: ignore[no-any-return]


def _described(model: nn.Module, described: Description) -> TrainedClassifier:
    """A model with what its description says."""
    return TrainedClassifier(model, **{name: getattr(described, name) for name in (
        "groups", "labels", "threshold", "pixels", "encoding", "group_columns")})
