"""Mixing V for the contrast of two classes: no record adds more, and noise is where the formula says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from fedfair.moments.sums import deviation, mixed, unmixed
from tests.for_each import for_each

WIDTH = 3


def mixing_matrix(groups: int) -> np.ndarray:
    """Return A, `[2 K, 2 K]`, as the root of (I + g g') / 2."""
    signs = np.tile([-1.0, 1.0], groups)
    values, vectors = np.linalg.eigh((np.eye(2 * groups) + np.outer(signs, signs)) / 2)
    made: np.ndarray = (vectors * np.sqrt(values)) @ vectors.T
    return made


def by_cell(first: Tensor) -> np.ndarray:
    """Return V with a row for each cell, `[2 K, d]`."""
    return first.transpose(1, 2).reshape(-1, first.shape[1]).numpy()


@given(st.integers(1, 6).flatmap(lambda groups: arrays(np.float64, (groups, WIDTH, 2), elements=st.floats(-9, 9))))
@settings(max_examples=100, deadline=None)
def test_mixing_is_the_product_with_the_root_and_can_be_undone(values: np.ndarray) -> None:
    first = torch.from_numpy(values)
    assert np.allclose(by_cell(mixed(first)), mixing_matrix(len(first)) @ by_cell(first), rtol=0, atol=1e-12)
    assert torch.allclose(unmixed(mixed(first)), first, rtol=0, atol=1e-12)


@for_each("groups", [1, 2, 3, 7])
def test_a_record_adds_as_much_to_what_is_mixed(groups: int) -> None:
    """In whichever cell it is. Without the root of 1/2, or with another factor of the contrast, it would add more."""
    phi = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    for cell in range(2 * groups):
        first = torch.zeros(groups, WIDTH, 2, dtype=torch.float64)
        first[cell // 2, :, cell % 2] = phi
        assert float(mixed(first).norm()) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_noise_after_mixing_is_what_the_formula_says(groups: int) -> None:
    draws = torch.Generator().manual_seed(groups)
    noise = unmixed(torch.randn(groups, 40_000, 2, generator=draws, dtype=torch.float64))
    contrast = torch.tensor([-1.0, 1.0], dtype=torch.float64).expand(groups, 2)
    of_class, of_group, own = (torch.zeros(groups, 2, dtype=torch.float64) for _ in range(3))
    of_class[:, 0], of_group[0], own[0, 0] = torch.arange(1.0, groups + 1), 1.0, 1.0
    for wanted in (contrast, of_class, of_group, own):
        drawn = torch.einsum("kc,kdc->d", wanted, noise)
        assert float(drawn.std()) == pytest.approx(deviation(wanted, True), rel=0.02)
    assert deviation(contrast, True) == pytest.approx(math.sqrt(4 * groups / (1 + 2 * groups)))
    assert deviation(of_group, True) == pytest.approx(2)
    assert deviation(contrast, False) == pytest.approx(math.sqrt(2 * groups))


def test_more_than_two_classes_have_no_one_contrast() -> None:
    with pytest.raises(ValueError, match="there are 3 classes, but only 2"):
        mixed(torch.zeros(2, WIDTH, 3))
