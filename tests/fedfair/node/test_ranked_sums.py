"""Sums weighted by ranks: no record changes them by more than the clip norm, whatever it is and wherever it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.datasets import GroupedDataset, Parts
from fedfair.mechanisms.clipping import Flat, PerGroup
from fedfair.mechanisms.noise import Trust
from fedfair.models.find import build
from fedfair.node import ranked_sums
from fedfair.node.node import Node
from fedfair.node.ranked_sums import rank_weights, ranked_sum
from fedfair.protocol.round import Round

CLIP = 0.7
ROUND = Round(key="0", step=0, rates=(1.0, 1.0), noise_multiplier=0.0, trust=Trust.CENTRAL, clients=1, rule=Flat(CLIP))


def records(number: int = 12, scale: float = 1.0, hostile: float = 1.0, seed: int = 0) -> GroupedDataset:
    draws = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(number, 3, generator=draws, dtype=torch.float64)
    x[number // 2] *= hostile
    return GroupedDataset(x, torch.randint(2, (number,), generator=draws),
                          torch.randint(2, (number,), generator=draws), ("a", "b"), 2)


def sent(data: GroupedDataset, reach: float, round_: Round = ROUND) -> Tensor:
    node = Node({0: Parts(data, data, data)}, build("logistic", (), (3,), 2, 0, torch.float64), "cpu")
    weights = {name: 0.1 * torch.ones_like(p) for name, p in node.model.named_parameters()}
    for value in weights.values():
        value[0] *= -1  # so that records of positive numbers and class 0 have large losses
    return torch.cat([value.flatten() for value in ranked_sum(node, weights, round_, [reach]).sums.values()])


def change(data: GroupedDataset, reach: float, place: int) -> float:
    """Return by how much the sum changes without one record."""
    without = data.take(torch.tensor([i for i in range(len(data)) if i != place]))
    return float((sent(data, reach) - sent(without, reach)).norm())


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 40), st.integers(0, 11), st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e200]), st.integers(0, 5))
def test_one_record_changes_the_sum_by_no_more_than_the_clip_norm(reach: float, place: int, hostile: float,
                                                                  seed: int) -> None:
    data = records(hostile=hostile, seed=seed)
    assert change(data, reach, place) <= CLIP * (1 + 1e-9)


def unlike() -> GroupedDataset:
    """Return five wrongly classified records of one direction, and one of another whose loss is the largest."""
    x = 50.0 * torch.eye(3, dtype=torch.float64)[[0, 0, 0, 0, 0, 1]]
    x[5] *= 2
    return GroupedDataset(x, torch.zeros(6, dtype=torch.long), torch.zeros(6, dtype=torch.long), ("a", "b"), 2)


def test_the_clip_norm_is_reached() -> None:
    assert change(unlike(), 6.0, 5) == pytest.approx(CLIP)


def test_weights_that_fall_along_the_batch_would_change_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that the proof excludes: places that are counted from the largest loss down."""
    monkeypatch.setattr(ranked_sums, "rank_weights", lambda losses, reach: 1 / (1 + (-losses).argsort().argsort()))
    assert change(unlike(), 6.0, 5) > 1.2 * CLIP


def test_ranks_count_from_the_smallest_loss_and_ties_keep_their_order() -> None:
    losses = torch.tensor([0.5, 0.1, 0.5, 9.0, 0.2])
    assert rank_weights(losses, 4.0).tolist() == pytest.approx([0.75, 0.25, 1.0, 1.0, 0.5])
    assert rank_weights(losses, 0.0).tolist() == [1.0] * 5
    assert rank_weights(torch.empty(0), 4.0).tolist() == []


@pytest.mark.parametrize(("reach", "round_", "said"), [
    (float("nan"), ROUND, "sent the reach"), (-1.0, ROUND, "sent the reach"), (float("inf"), ROUND, "sent the reach"),
    (1.0, replace(ROUND, rule=PerGroup((1.0, 2.0))), "one clip norm for all groups, but .* is PerGroup")])
def test_a_request_that_does_not_fit_is_refused(reach: float, round_: Round, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sent(records(), reach, round_)


def test_a_reach_for_too_few_clients_is_refused() -> None:
    data = records()
    node = Node({3: Parts(data, data, data)}, build("logistic", (), (3,), 2, 0, torch.float64), "cpu")
    with pytest.raises(ValueError, match="the reach of 2 clients, but one is numbered 3"):
        ranked_sum(node, {name: p.detach() for name, p in node.model.named_parameters()}, ROUND, [1.0, 1.0])


def test_an_empty_batch_is_a_batch() -> None:
    assert not sent(records(), 3.0, replace(ROUND, rates=(0.0, 0.0))).any()
