"""The released sums: what they are, and by how much one record can change them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from fedfair.moments.sums import SENSITIVITY, moment_sums, svec, unsvec, within_one, zeros
from tests.for_each import for_each

GROUPS, CLASSES, WIDTH = 3, 2, 4


def slow_sums(features: Tensor, y: Tensor, group: Tensor, by_group: bool) -> tuple[Tensor, Tensor]:
    """Add up one record after the other: S and V."""
    second = torch.zeros(GROUPS if by_group else 1, WIDTH, WIDTH, dtype=torch.float64)
    first = torch.zeros(GROUPS, WIDTH, CLASSES, dtype=torch.float64)
    for phi, label, k in zip(features.double(), y.tolist(), group.tolist(), strict=True):
        phi = phi / max(1.0, float(phi.norm()))
        second[k if by_group else 0] += torch.outer(phi, phi)
        first[k, :, label] += phi
    return second, first


def records(n: int, seed: int = 0, scale: float = 0.4) -> tuple[Tensor, Tensor, Tensor]:
    """Draw features, labels and groups."""
    draws = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(n, WIDTH, generator=draws, dtype=torch.float64),
            torch.randint(CLASSES, (n,), generator=draws), torch.randint(GROUPS, (n,), generator=draws))


def flat(sums: dict[str, Tensor]) -> Tensor:
    """Return all released numbers as one vector."""
    return torch.cat([value.flatten() for value in sums.values()])


@for_each("by_group", [False, True])
@for_each("n", [0, 1, 50, 20_000])
def test_sums_are_those_of_a_plain_loop(n: int, by_group: bool) -> None:
    x, y, group = records(min(n, 500))
    times = max(1, n // 500)
    made = moment_sums(x.repeat(times, 1), y.repeat(times), group.repeat(times), GROUPS, CLASSES, by_group)
    second, first = slow_sums(x, y, group, by_group)
    assert torch.allclose(unsvec(made["second"]), times * second, rtol=1e-12, atol=1e-12)
    assert torch.allclose(made["first"], times * first, rtol=1e-12, atol=1e-12)
    like = zeros(WIDTH, GROUPS, CLASSES, by_group)
    assert {name: value.shape for name, value in made.items()} == {name: value.shape for name, value in like.items()}


NUMBERS = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, 1e308, -1e308, 1e-308, math.inf, -math.inf, math.nan]))


@given(arrays(np.float64, (5, WIDTH), elements=NUMBERS), st.integers(0, GROUPS - 1), st.integers(0, CLASSES - 1),
       st.booleans(), st.integers(0, 99))
@settings(max_examples=300, deadline=None)
def test_no_record_changes_the_sums_by_more_than_their_sensitivity(rows: np.ndarray, group: int, label: int,
                                                                   by_group: bool, seed: int) -> None:
    """Whatever its features are, and whatever the other records are."""
    others, y, groups = records(7, seed, 2.0)
    one = torch.from_numpy(rows)[:1]
    without = moment_sums(others, y, groups, GROUPS, CLASSES, by_group)
    added = moment_sums(torch.cat([others, one]), torch.cat([y, torch.tensor([label])]),
                        torch.cat([groups, torch.tensor([group])]), GROUPS, CLASSES, by_group)
    change = flat(added) - flat(without)
    assert bool(change.isfinite().all())
    assert float(change.norm()) <= SENSITIVITY * (1 + 1e-9)


@pytest.mark.parametrize("by_group", [False, True])
def test_the_sensitivity_is_reached(by_group: bool) -> None:
    """By a record of norm 1: |phi|^4 + |phi|^2 = 2. A factor for off-diagonal entries that is less would hide it."""
    one = torch.full((1, WIDTH), 0.5, dtype=torch.float64)
    made = moment_sums(one, torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long), GROUPS, CLASSES,
                       by_group)
    assert float(flat(made).norm()) == pytest.approx(math.sqrt(2), rel=1e-12)


@given(arrays(np.float64, (2, WIDTH, WIDTH), elements=st.floats(-10, 10)))
@settings(max_examples=50, deadline=None)
def test_svec_keeps_norms_and_can_be_undone(values: np.ndarray) -> None:
    matrices = torch.from_numpy(values + values.transpose(0, 2, 1))
    made = svec(matrices)
    assert torch.allclose(made.norm(dim=1), matrices.flatten(1).norm(dim=1), rtol=1e-12)
    assert torch.allclose(unsvec(made), matrices, rtol=1e-12, atol=1e-12)


@given(arrays(np.float64, (3, WIDTH), elements=NUMBERS))
@settings(max_examples=200, deadline=None)
def test_rows_are_shortened_to_one_and_keep_their_direction(values: np.ndarray) -> None:
    rows = torch.from_numpy(values)
    short = within_one(rows)
    assert float(short.norm(dim=1).max()) <= 1 + 1e-15
    for before, after in zip(rows, short, strict=True):
        if not bool(before.isfinite().all()):
            assert not bool(after.any())
        elif float((before / 1e300).norm()) < 1e-200 and float(before.norm()) <= 1:
            assert torch.equal(before, after)
