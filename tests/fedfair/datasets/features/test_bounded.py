"""Features of bounded norm: at most 1 for every record there could be, and the same for new rows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedfair.datasets.features.bounded import bounded, image_features
from fedfair.datasets.features.encoder import encode
from fedfair.datasets.features.encoding import Bounding, Encoding, Feature
from fedfair.datasets.features.features import Range, binned, public_edges, quantiles
from fedfair.datasets.grouped import GroupedDataset
from fedfair.models.published import linear
from fedfair.protocol.task import Task
from simulations.results.classifier import TrainedClassifier
from tests.for_each import for_each

NUMBERS = st.floats(-1e6, 1e6)


def table(x: np.ndarray) -> GroupedDataset:
    """Return records with the numbers "a", "b", ..., which are not yet scaled."""
    n, width = x.shape
    none = torch.zeros(n, dtype=torch.long)
    encoding = Encoding(tuple(Feature("abcdef"[at]) for at in range(width)))
    return GroupedDataset(torch.from_numpy(x), none, none, ("k",), 2, encoding=encoding)


@given(arrays(np.float64, (6, 3), elements=NUMBERS), st.lists(NUMBERS, min_size=1, max_size=5, unique=True))
@settings(max_examples=100, deadline=None)
def test_a_number_is_in_exactly_one_bin_of_its_column(x: np.ndarray, ends: list[float]) -> None:
    edges = sorted(ends)
    made = bounded(binned(table(x), dict.fromkeys("abc", edges)), "binned")
    phi = made.x.numpy()
    assert phi.shape == (6, 3 * (len(edges) + 1) + 1)
    assert np.allclose(np.linalg.norm(phi, axis=1), 1, atol=1e-12)
    for at in range(3):
        places = np.searchsorted(edges, x[:, at], side="right")
        block = phi[:, at * (len(edges) + 1):(at + 1) * (len(edges) + 1)]
        assert np.array_equal(block > 0, np.eye(len(edges) + 1)[places] > 0)


@given(arrays(np.float64, (5, 4), elements=st.floats(-1e150, 1e150)), st.floats(0.1, 50), st.floats(0.01, 5))
@settings(max_examples=100, deadline=None)
def test_no_row_is_longer_than_one_and_the_last_coordinate_is_constant(x: np.ndarray, longest: float, constant: float
                                                                        ) -> None:
    bounding = Bounding(longest, constant)
    phi = bounding.of(torch.from_numpy(x))
    assert float(phi.norm(dim=1).max()) <= 1 + 1e-12
    assert torch.allclose(phi[:, -1], torch.full((5,), bounding.last, dtype=torch.float64), rtol=1e-12)


def test_bins_of_wide_amounts_are_of_equal_ratio_and_others_of_equal_width() -> None:
    assert public_edges(Range("age", 17, 90), 10) == pytest.approx([17 + 7.3 * k for k in range(1, 10)])
    wide = public_edges(Range("gain", 0, 99_999), 6)
    assert wide == pytest.approx([99_999 ** (k / 5) for k in range(6)])
    assert public_edges(Range("balance", -8_000, 100_000), 4) == pytest.approx([19_000, 46_000, 73_000])


def test_quantiles_hold_equal_numbers_and_are_not_repeated() -> None:
    assert quantiles(torch.arange(101.0), 4) == (25, 50, 75)
    assert quantiles(torch.tensor([0.0] * 95 + [1.0] * 5), 10) == (1,)
    assert quantiles(torch.zeros(5), 3) == ()


@pytest.mark.parametrize(("edges", "said"), [([1, 1], "numbers that rise"), ([2, 1], "numbers that rise"),
                                             ([math.inf], "give finite numbers")])
def test_ends_that_do_not_rise_are_refused(edges: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        binned(table(np.zeros((1, 1))), {"a": edges})


def test_numbers_without_bins_are_named() -> None:
    with pytest.raises(ValueError, match="nothing is known of the bins of a"):
        binned(table(np.zeros((1, 1))), {})


@pytest.mark.parametrize("features", ["binned", "ranges", "bounded", "standardised"])
def test_new_rows_become_what_they_became_for_the_training(features: str, tmp_path: Path) -> None:
    """In a file of one's own with public ranges and categories, also beyond them."""
    draws = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draws.integers(10, 99, 60), "pay": draws.integers(0, 10**6, 60),
                          "job": draws.choice(["a", "b", "z"], 60), "sex": draws.choice(["f", "m"], 60),
                          "hired": draws.integers(0, 2, 60)})
    file = tmp_path / "own.csv"
    frame.to_csv(file, index=False)
    task = Task(csv=str(file), label="hired", group="sex", features=features, split=(0.5, 0.0, 0.5), dtype="float64",
                ranges=[("age", 18, 80), ("pay", 0, 500_000)], categories=[("job", ["a", "b", "other"])],
                scalings=[("age", 45, 20), ("pay", 1e5, 1e5)] if features == "standardised" else None)
    parts = task.data()
    assert task.learned_from_records() is None
    for _, part in parts:
        rows = frame.iloc[part.records.tolist()]
        assert torch.allclose(encode(rows, part.encoding), part.x, rtol=0, atol=1e-12)
        assert len(part) == 0 or float(part.x.norm(dim=1).max()) <= 1 + 1e-12
    assert parts.train.x.shape[1] == len(parts.train.encoding.features) + 1


def test_bins_that_are_quantiles_of_the_records_are_nominal(data_dir: Path) -> None:
    learned = Task(dataset="compas", features="binned", preprocessing="records").learned_from_records()
    assert learned is not None
    assert "the ends of bins are quantiles of the training records" in learned
    assert Task(dataset="compas", features="binned").learned_from_records() is None


@pytest.mark.parametrize("features", ["binned", "ranges", "bounded"])
def test_no_record_moves_the_features_of_another(features: str, tmp_path: Path) -> None:
    """Bins from the data would: an extreme row moves quantiles, means and largest values, and no others."""
    frame = pd.DataFrame({"age": [20, 30, 41, 52, 63, 74] * 4, "pay": [1.0, 5.0, 9.0, 30.0, 70.0, 80.0] * 4,
                          "sex": ["f", "m"] * 12, "hired": [0, 1, 1] * 8})
    seen = []
    for extreme in (20, 10**6):
        file = tmp_path / f"{extreme}.csv"
        frame.loc[0, ["age", "pay"]] = extreme
        frame.to_csv(file, index=False)
        task = Task(csv=str(file), label="hired", group="sex", features=features, split=(0.8, 0.0, 0.2),
                    ranges=(Range("age", 18, 90), Range("pay", 0, 100)))
        parts = task.data()
        records = torch.cat([parts.train.records, parts.test.records])
        seen.append(torch.cat([parts.train.x, parts.test.x])[records.argsort()])
    assert torch.equal(seen[0][1:], seen[1][1:])
    assert not torch.equal(seen[0][0], seen[1][0])


@for_each(("settings_", "said"), [
    ({"features": "ranges", "bins": 5}, "bins or edges are given"),
    ({"dataset": "digits", "features": "binned"}, "the records are no table"),
    ({"dataset": "digits", "features": "filters"}, "no images of at least 16 x 16"),
    ({"dataset": "digits", "features": "handwriting"}, "no images of at least 16 x 16"),
    ({"dataset": "compas", "features": "pixels"}, "rows of a table"),
    ({"dataset": "compas", "features": "standardised"}, "scalings says nothing of"),
])
def test_features_that_do_not_suit_are_refused(settings_: dict[str, object], said: str, data_dir: Path) -> None:
    with pytest.raises(ValueError, match=said):
        Task(**settings_).data()  # type: ignore[arg-type]


@given(arrays(np.uint8, (3, 1, 20, 24), elements=st.integers(0, 255)))
@settings(max_examples=30, deadline=None)
def test_no_image_has_features_longer_than_one(images: np.ndarray) -> None:
    for kind in ("filters", "handwriting", "pixels"):
        phi = image_features(torch.from_numpy(images), kind)
        assert float(phi.double().norm(dim=1).max()) <= 1 + 1e-6
        assert len(phi[:, -1].unique()) == 1


def test_filters_tell_directions_apart_and_see_each_image_alone() -> None:
    stripes = np.zeros((2, 1, 28, 28), np.uint8)
    stripes[0, 0, ::4], stripes[1, 0, :, ::4] = 255, 255
    for kind in ("filters", "handwriting"):
        both = image_features(torch.from_numpy(stripes), kind)
        assert float(both[0] @ both[1]) < 0.9 * float(both[0] @ both[0])
        assert torch.allclose(image_features(torch.from_numpy(stripes[:1]), kind)[0], both[0], atol=1e-5)


def test_a_model_on_image_features_takes_new_images_as_bytes() -> None:
    """They become what those of the training became; `TrainedClassifier` has their kind from the encoding."""
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 1, 20, 20), np.uint8))
    none = torch.zeros(4, dtype=torch.long)
    data = bounded(GroupedDataset(images, none, none, ("k",), 2), "bounded")
    assert data.encoding.images == "filters"
    assert data.encoding.bounding is not None
    assert float(data.x[0, -1]) == pytest.approx(data.encoding.bounding.last, rel=1e-6)
    model = linear(data.x.shape[1:], (), 2)
    classifier = TrainedClassifier(model, data.names, data.labels, encoding=data.encoding)
    with torch.no_grad():
        assert np.allclose(classifier.predict_proba(images.numpy()), model(data.x).double().softmax(1), atol=1e-6)
