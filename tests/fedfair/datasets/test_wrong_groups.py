"""Groups of some records drawn anew: as randomised response draws them, and never in what figures are of."""

from __future__ import annotations

import math

import pytest
import torch

from fedfair.datasets.grouped import GroupedDataset, Parts
from fedfair.datasets.split import with_wrong_groups
from fedfair.protocol.task import Task
from simulations import Experiment
from tests.strategies.two_groups import two_groups

ROWS, NAMES = 60_000, ("a", "b", "c")


def records(group: int) -> GroupedDataset:
    """Many records of one group."""
    return GroupedDataset(torch.zeros(ROWS, 1), torch.zeros(ROWS).long(), torch.full((ROWS,), group), NAMES, 2)


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_a_group_is_hidden_as_randomised_response_hides_it(share: float) -> None:
    """The odds of what is seen between two true groups are at most e^epsilon, which is reached."""
    seen = []
    for true in (0, 1):
        parts = with_wrong_groups(Parts(*(records(true) for _ in range(3))), share, seed=4)
        assert torch.equal(parts.test.group, records(true).group)
        assert not torch.equal(parts.train.group, parts.valid.group)
        seen.append(torch.bincount(parts.train.group, minlength=3) / ROWS)
    odds = float(torch.maximum(seen[0] / seen[1], seen[1] / seen[0]).max())
    epsilon = math.log(1 + len(NAMES) * (1 - share) / share)
    assert odds == pytest.approx(math.exp(epsilon), rel=0.1)
    assert float(seen[0][0]) == pytest.approx(1 - share * 2 / 3, abs=0.01)


def test_training_and_validation_records_have_the_drawn_groups_and_test_records_the_true_ones() -> None:
    true, wrong = Task(imbalance="8:40"), Task(imbalance="8:40", wrong_groups=0.2)
    for part, expected in ((name, parts) for name, parts in true.data()):
        found = dict(wrong.data())[part]
        assert torch.equal(found.x, expected.x)
        assert torch.equal(found.y, expected.y)
        share = float((found.group != expected.group).float().mean())
        assert share == pytest.approx(0.18 * (part != "test"), abs=0.06)


def test_what_it_cannot_simulate_is_refused() -> None:
    with pytest.raises(ValueError, match=r'wrong_groups is 0\.2, a simulation .* but figures is "private"'):
        Experiment(**two_groups(), strategy="moments", features="ranges", figures="private", wrong_groups=0.2)
    with pytest.raises(ValueError, match=r'wrong_groups is 0\.2, which is for simulations, but partition is "nodes"'):
        Task(partition="nodes", label="y", group="g", ranges={"x": [0, 1]}, categories={"g": ["a"], "y": ["n"]},
             wrong_groups=0.2)
