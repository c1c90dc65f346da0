"""Losses by group that come with a gradient sum: what is added, and how much one record can change."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.mechanisms.counting import Above, Losses
from fedfair.models.find import build
from fedfair.node.loss_sums import sum_and_losses
from fedfair.node.node import Node
from fedfair.node.noisy_sums import Contribution
from fedfair.protocol.round import Round
from tests.fedfair.node.test_ranked_sums import CLIP, ROUND, records

COUNTING = replace(ROUND, query=Losses(0.8), count_noise_multiplier=0.0)


def sent(data: GroupedDataset, round_: Round = COUNTING) -> Contribution:
    node = Node({0: Parts(data, data, data)}, build("logistic", (), (3,), 2, 0, torch.float64), "cpu")
    return sum_and_losses(node, {name: p.detach() for name, p in node.model.named_parameters()}, round_)


def flat(contribution: Contribution) -> Tensor:
    return torch.cat([value.flatten() for value in contribution.sums.values()])


def test_losses_are_added_up_by_group_none_above_the_bound() -> None:
    data, model = records(), build("logistic", (), (3,), 2, 0, torch.float64)
    by_group = [0.0, 0.0]
    above = 0
    for x, y, k in zip(data.x, data.y, data.group.tolist(), strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None]).item()
        by_group[k] += min(loss, 0.8) / 0.8
        above += loss > 0.8
    assert 0 < above < len(data)
    counts = sent(data).counts
    assert counts is not None
    assert counts.tolist() == pytest.approx(by_group)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([0.0, 1.0, 1e3, 1e200, 1e308]), st.floats(1e-3, 100), st.integers(0, 11))
def test_one_record_changes_sum_and_losses_by_no_more_than_their_sensitivities(hostile: float, bound: float,
                                                                               place: int) -> None:
    data, round_ = records(hostile=hostile), replace(COUNTING, query=Losses(bound))
    kept = data.take(torch.tensor([i for i in range(len(data)) if i != place]))
    with_it, without = sent(data, round_), sent(kept, round_)
    assert with_it.counts is not None
    assert without.counts is not None
    assert float((flat(with_it) - flat(without)).norm()) <= CLIP * (1 + 1e-9)
    assert float((with_it.counts - without.counts).norm()) <= 1 + 1e-9


def test_losses_that_are_not_finite_count_as_the_bound() -> None:
    losses = torch.tensor([float("nan"), float("inf"), -3.0, 1.0])
    assert Losses(2.0).sums(losses, torch.tensor([0, 0, 1, 1]), 3).tolist() == [2.0, 0.5, 0.0]


def test_requests_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"comes? with a count query of losses, but the round's query is Above"):
        sent(records(), replace(COUNTING, query=Above(1.0)))
    with pytest.raises(ValueError, match="of losses, not of gradient norms"):
        Losses(1.0).counts(torch.empty(0), torch.empty(0, dtype=torch.long), 2)
    with pytest.raises(ValueError, match="bound of the count query Losses is 0"):
        Losses(0.0)
