"""The choice of a classifier of a front by noisy figures, and figures of one that decides alike for everybody."""

from __future__ import annotations

import math

import pytest
import torch

from fedfair.fairness.metrics import ALL
from fedfair.fairness.noisy_figures import constant_counts
from fedfair.moments.front import Front, Point
from strategies.server.releases.front import FrontRow, MeasuredFront, least_constrained

TAUS = (1.0, 0.5, 0.0)


def measured(*gaps: tuple[float, float]) -> MeasuredFront:
    """Return a front of some taus with gaps and the lower ends of their intervals, and the constant one."""
    rows = [FrontRow(point=point, split="valid", group=ALL, metric="demographic_parity", value=value, low=low, high=1.0)
            for point, (value, low) in enumerate([*gaps, (0.0, 0.0)]) if value < math.inf]
    points = (*(Point("least_squares", tau=tau) for tau in TAUS), Point("constant"))
    return MeasuredFront(Front(points, torch.zeros(len(points), 2, 2)), tuple(rows))


@pytest.mark.parametrize(("gaps", "limit", "taken"), [
    (((0.3, 0.2), (0.04, 0.0), (0.01, 0.0)), 0.05, 1), (((0.3, 0.2), (0.1, 0.0), (0.2, 0.1)), 0.05, 1),
    (((0.3, 0.2), (0.1, 0.06), (0.2, 0.04)), 0.05, 3), (((math.inf, math.inf),) * 3, 0.05, 0)],
    ids=["the least constrained within", "the nearest that may be within", "none, as is told", "nothing is known"])
def test_a_limit_takes_the_constant_only_where_no_other_may_keep_it(gaps: tuple[tuple[float, float], ...], limit: float,
                                                                   taken: int) -> None:
    assert least_constrained(measured(*gaps), ("demographic_parity",), limit) == taken


def test_what_decides_alike_has_no_gap_whatever_the_noise() -> None:
    labels = torch.tensor([[30.0, 90.0], [-4.0, 11.0]], dtype=torch.float64)
    found = {(row.group, row.metric): row[2:] for row in constant_counts(labels, 9.0, 1, ("a", "b"), 0).figures()}
    for gap in ("demographic_parity", "equal_opportunity", "equalised_odds"):
        assert found[ALL, gap] == (0.0, 0.0, 0.0)
    assert found["b", "positive_rate"] == (0.0, 0.0, 0.0)
    assert found["a", "accuracy"][0] == 0.25
    assert found["a", "accuracy"][1] < 0.25 < found["a", "accuracy"][2]
