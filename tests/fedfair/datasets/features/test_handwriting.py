"""Axes that public digits have, and what they are worth on other images."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedfair.datasets.features import image_features
from fedfair.datasets.features.image_features import filters
from fedfair.datasets.published.images import mnist
from simulations import Experiment, run


def test_axes_are_the_same_every_time_and_classes_vary_by_one_within_along_them() -> None:
    axes = image_features._axes()
    image_features._axes.cache_clear()
    assert torch.equal(image_features._axes().axes, axes.axes)
    public = image_features.digits()
    along = (filters(image_features._copies(public.x.float())) - axes.middle) @ axes.axes
    digit = public.y.repeat(3)
    within = torch.stack([along[digit == one].var(0) for one in range(10)]).mean(0)
    assert float(within.max()) <= 1  # the ridge takes the rest
    assert float(within[:9].min()) > 0.1


def test_the_first_axes_tell_digits_of_other_writers_apart(data_dir: Path) -> None:
    data = mnist()
    along = image_features.handwriting(data.x[:4000])[:, :9]
    means = torch.stack([along[:2000][data.y[:2000] == one].mean(0) for one in range(10)])
    nearest = torch.cdist(along[2000:], means).argmin(1)
    assert float((nearest == data.y[2000:4000]).double().mean()) > 0.85


@pytest.mark.slow
def test_few_axes_need_little_noise(data_dir: Path) -> None:
    """On MNIST with 500 eights at epsilon .5: .951, where all filters have .925, in docs/moments.md."""
    settings = {"dataset": "mnist", "imbalance": "8:500", "strategy": "moments", "features": "handwriting",
                "model": "linear", "target_epsilon": 0.5, "delta": 1e-6, "sampling_rate": 1.0}
    metrics = run(Experiment(**settings)).metrics
    asked = (metrics["split"] == "test") & (metrics["group"] == "all") & (metrics["metric"] == "accuracy")
    assert float(metrics[asked]["value"].iloc[-1]) > 0.94
