"""How scores lie over records: held against records themselves, of columns that act alone, with a long tail or none."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedfair.mechanisms.randomness import generator
from fedfair.moments.logistic import Scores
from fedfair.moments.posterior import constant_missed

RECORDS, BINS = 20_000, 6
LAST = 1.0 / math.sqrt(3)


def drawn(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return features of two columns with bins of unequal shares and the constant one, `[n, k]`, and their columns."""
    draws = generator(seed, "scores")
    shares = torch.tensor([0.3, 0.25, 0.2, 0.12, 0.08, 0.05], dtype=torch.float64)
    codes = torch.multinomial(shares, 2 * RECORDS, replacement=True, generator=draws).view(RECORDS, 2)
    phi = torch.cat([*torch.nn.functional.one_hot(codes, BINS).double().unbind(1), torch.ones(RECORDS, 1).double()], 1)
    return phi * LAST, torch.tensor([0] * BINS + [1] * BINS + [-1])


def test_mean_and_deviation_are_those_of_the_records() -> None:
    phi, _ = drawn()
    weights = torch.arange(2.0 * BINS + 1, dtype=torch.float64)
    found, own = Scores.of(weights, phi.T @ phi, LAST), phi @ weights
    assert float(found.mean) == pytest.approx(float(own.mean()))
    assert float(found.deviation) == pytest.approx(float(own.std(correction=0)))


def test_scores_that_are_all_one_miss_no_constant() -> None:
    phi, column = drawn()
    weights = torch.zeros(2 * BINS + 1, dtype=torch.float64)
    weights[-1] = 2.0
    assert constant_missed(weights, phi.T @ phi, LAST, column) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("tail", "missed"), [(0.0, 0.0), (9.0, 1.0)])
def test_the_constant_gives_records_the_mean_probability_of_normal_scores(tail: float, missed: float) -> None:
    phi, column = drawn()
    weights = torch.zeros(2 * BINS + 1, dtype=torch.float64)
    weights[BINS - 1], weights[-1] = tail, -4.0
    weights[BINS:-1] = torch.linspace(-0.5, 0.5, BINS, dtype=torch.float64)
    weights /= LAST
    second = phi.T @ phi
    found, wanted = constant_missed(weights, second, LAST, column), Scores.of(weights, second, LAST).probability
    assert abs(found) >= 0.2 * missed
    assert float(torch.sigmoid(phi @ weights + found).mean()) == pytest.approx(float(wanted), rel=0.03)
