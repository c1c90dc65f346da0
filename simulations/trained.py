"""A trained model as a scikit-learn classifier, which applies the thresholds that were chosen."""

from __future__ import annotations

import json
import tomllib
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

from fedfair import models
from fedfair.datasets.encoding import NO_TABLE, Encoding
from fedfair.datasets.grouped import Pixels
from fedfair.datasets.new_rows import encode
from fedfair.registry import unknown
from fedfair.thresholds import RejectOption
from simulations.result import Result


class TrainedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts classes 0, 1, ..., which are called `labels`, for the rows of a table or for rows prepared already.

    A `DataFrame` has the columns of the table that was trained on; `encoding` says what becomes of them. An array is
    prepared like those of `Result.data`; of bytes, it holds pixels, standardised with the mean and the deviation
    `pixels`, as they were for training. `groups` are the groups' names in the order of their numbers. With a
    `threshold`, the decision hangs on the record's group, which `predict` must then be told. `fit` changes nothing: the
    model is trained.
    """

    def __init__(self, model: nn.Module, groups: Sequence[str], labels: Sequence[str],
                 threshold: RejectOption | None = None, pixels: Sequence[float] = (0.0, 1.0),
                 encoding: Encoding = NO_TABLE) -> None:
        self.model, self.groups, self.labels, self.threshold = model, groups, labels, threshold
        self.pixels, self.encoding = pixels, encoding

    @staticmethod
    def of(result: Result) -> TrainedClassifier:
        """The model of a run, with its threshold if it has one."""
        train = result.data.train
        return TrainedClassifier(result.model, train.names, train.labels,
                                 result.threshold.rule if result.threshold else None, result.experiment.pixels,
                                 train.encoding)

    @staticmethod
    def load(folder: str | Path) -> TrainedClassifier:
        """The model of a folder that `Result.save` wrote; needs no data, but of a model of your own its file.

        Raises `FileNotFoundError` if there is none, and `ValueError` for the folder of a comparison.
        """
        file = Path(folder) / "model.safetensors"
        if not file.is_file():
            raise FileNotFoundError(f"there is no model.safetensors in {folder}: give the folder of a finished run")
        with safe_open(str(file), "pt") as saved:
            described = (saved.metadata() or {}).get("fedfair")
            weights = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118 - no mapping
        if described is None:
            raise ValueError(f"{folder} does not hold a single run: give the folder of one, as fedfair run --out "
                             "leaves it")
        shape, groups, labels, encoding = (json.loads(described)[key] for key in
                                           ("shape", "groups", "labels", "encoding"))
        settings = tomllib.loads((Path(folder) / "config.toml").read_text())
        dtype = torch.float64 if settings["dtype"] == "float64" else torch.float32
        model = models.build(settings["model"], settings["hidden"], shape, len(labels), 0, dtype)
        model.load_state_dict(weights)
        return TrainedClassifier(model, tuple(groups), tuple(labels), _threshold(Path(folder), groups, labels),
                                 settings["pixels"], Encoding.from_lists(*encoding))

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

        Raises `ValueError` if it needs them and they are not given, or for a name that is not a group's.
        """
        output = self._output(x)
        if self.threshold is None:
            return np.asarray(output.argmax(1))
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


def _threshold(folder: Path, groups: Sequence[str], labels: Sequence[str]) -> RejectOption | None:
    """The threshold of a folder's run, if it has one."""
    file = folder / "thresholds.json"
    if not file.is_file():
        return None
    values = next(iter(json.loads(file.read_text()).values()))
    return RejectOption(tuple(values["gammas"][name] for name in groups),
                        tuple(name in values["deprived"] for name in groups), labels.index(values["favourable"]))
