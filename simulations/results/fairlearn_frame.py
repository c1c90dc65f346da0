"""A run's test part as a MetricFrame of fairlearn: any metric of theirs, by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from simulations.results.classifier import TrainedClassifier
from simulations.results.result import Result
from simulations.settings.extras import library


def predictions_of_test(result: Result) -> dict[str, Any]:
    """`y_true`, `y_pred` and `sensitive_features` (names of groups), `[n]` each, as fairlearn's functions take them.

    Computed without noise: what is made of them is not private.
    """
    test = result.data.test
    names = np.array(test.names)[test.group.numpy()]
    predicted = TrainedClassifier.of(result).predict(test.x.numpy(), names)
    return {"y_true": test.y.numpy(), "y_pred": predicted, "sensitive_features": names}


def metric_frame(result: Result, metrics: Mapping[str, Callable[..., float]] | Callable[..., float]) -> Any:
    """A `fairlearn.metrics.MetricFrame` of the test part; raises `ValueError` if fairlearn is not installed."""
    return library("fairlearn.metrics", "fairlearn").MetricFrame(metrics=metrics, **predictions_of_test(result))
