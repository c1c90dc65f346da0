"""A run's test part for fairlearn: any of its metrics, by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedfair.plugins.lazy import library
from simulations.results.classifier import TrainedClassifier
from simulations.results.result import Result


def predictions_of_test(result: Result) -> dict[str, Any]:
    """Return a run's predictions on its test part, as fairlearn's functions take them.

    They are computed without noise: whatever is made of them is not private.

    Args:
        result: Result of the run.

    Returns:
        `y_true`, `y_pred` and `sensitive_features` (names of groups), `[n]` each.

    Raises:
        ValueError: If all records trained, so that there is no test part.

    Examples:
        >>> from simulations import Experiment, run
        >>> predictions = predictions_of_test(run(Experiment(strategy="sgd", steps=2, hidden=(4,))))
        >>> {name: len(values) for name, values in predictions.items()}
        {'y_true': 359, 'y_pred': 359, 'sensitive_features': 359}
    """
    test = result.data.test
    if not len(test):
        raise ValueError("the test part has no records: give it a share in split, for example [0.7, 0.1, 0.2]")
    names = np.array(test.names)[test.group.numpy()]
    predicted = TrainedClassifier.of(result).predict(test.x.numpy(), names)
    return {"y_true": test.y.numpy(), "y_pred": predicted, "sensitive_features": names}


def metric_frame(result: Result, metrics: Mapping[str, Callable[..., float]] | Callable[..., float]) -> Any:
    """Make a `fairlearn.metrics.MetricFrame` of a run's test part.

    Args:
        result: Result of the run.
        metrics: Metrics by name, or a single one: functions of `y_true` and `y_pred`, as in fairlearn.

    Raises:
        ValueError: If fairlearn is not installed.

    Examples:
        >>> from sklearn.metrics import accuracy_score
        >>> from simulations import Experiment, run
        >>> result = run(Experiment(strategy="sgd", steps=2, hidden=(4,)))
        >>> frame = metric_frame(result, {"accuracy": accuracy_score})
        >>> frame.by_group.shape
        (10, 1)
    """
    return library("fairlearn.metrics", "fairlearn").MetricFrame(metrics=metrics, **predictions_of_test(result))
