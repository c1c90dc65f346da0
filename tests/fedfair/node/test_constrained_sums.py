"""What leaves a node with a constrained sum, record by record; what one record can change, whatever a server asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.datasets import GroupedDataset, Parts
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.counting import GroupSizes, Predictions
from fedfair.mechanisms.noise import Trust
from fedfair.models.find import build
from fedfair.node.constrained_sums import constrained_sum
from fedfair.node.node import Node
from fedfair.node.noisy_sums import Contribution
from fedfair.protocol.round import Round

K, CLASSES, CLIP = 3, 2, 0.7
ROUND = Round(key="0", step=0, rates=(1.0,) * K, noise_multiplier=0.0, trust=Trust.CENTRAL, clients=1,
              rule=Flat(CLIP), query=Predictions(2.0), count_noise_multiplier=0.0)
PRICES = [0.5, -1.5, 2.0, 0.0, 7.0, -3.0]


def records(number: int = 20, hostile: float = 1.0) -> GroupedDataset:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(number, 4, generator=draws, dtype=torch.float64)
    x[-1] *= hostile
    return GroupedDataset(x, torch.randint(CLASSES, (number,), generator=draws),
                          torch.randint(K, (number,), generator=draws), ("a", "b", "c"), CLASSES)


def model() -> torch.nn.Module:
    return build("mlp", (5,), (4,), CLASSES, 0, torch.float64)


def sent(data: GroupedDataset, prices: Sequence[float] = PRICES, round_: Round = ROUND) -> Contribution:
    node = Node({0: Parts(data, data, data)}, model(), "cpu")
    return constrained_sum(node, {name: p.detach() for name, p in node.model.named_parameters()}, round_, prices)


def flat(contribution: Contribution) -> Tensor:
    return torch.cat([value.flatten() for value in contribution.sums.values()])


def test_the_sum_is_that_of_a_plain_loop_over_records() -> None:
    data, built = records(), model()
    total, histogram = torch.zeros(37, dtype=torch.float64), torch.zeros(K, CLASSES, dtype=torch.float64)
    clipped = 0
    for x, y, k in zip(data.x, data.y.tolist(), data.group.tolist(), strict=True):
        scores = built(x[None])[0]
        shares = torch.exp(2 * scores) / torch.exp(2 * scores).sum()
        price = sum(PRICES[CLASSES * k + c] * shares[c] for c in range(CLASSES))
        loss = price - torch.log(torch.exp(scores[y]) / torch.exp(scores).sum())
        g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(built.parameters()))])
        total += g * min(1.0, CLIP / float(g.norm()))
        histogram[k] += shares.detach()
        clipped += float(g.norm()) > CLIP
    found = sent(data)
    assert 0 < clipped < len(data)
    assert torch.allclose(flat(found), total, rtol=0, atol=1e-12)
    assert found.counts is not None
    assert torch.allclose(found.counts, histogram, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-1e6, 1e6), min_size=K * CLASSES, max_size=K * CLASSES),
       st.sampled_from([0.0, 1.0, 1e3, 1e200, 1e308]), st.floats(0.1, 100))
def test_one_record_changes_sum_and_histogram_by_no_more_than_their_sensitivities(
        prices: list[float], hostile: float, temperature: float) -> None:
    """Whatever prices a server asks for, and whatever the record: what the noise is relative to is never exceeded."""
    data, round_ = records(hostile=hostile), replace(ROUND, query=Predictions(temperature))
    with_it, without = (sent(part, prices, round_) for part in (data, data.take(torch.arange(len(data) - 1))))
    assert with_it.counts is not None
    assert without.counts is not None
    assert float((flat(with_it) - flat(without)).norm()) <= CLIP * (1 + 1e-9)
    assert float((with_it.counts - without.counts).norm()) <= 1 + 1e-9


def test_both_sensitivities_are_reached() -> None:
    data = records(hostile=30.0)
    round_ = replace(ROUND, query=Predictions(50.0))
    with_it, without = (sent(part, [100.0, -100.0] * K, round_) for part in (data, data.take(torch.arange(19))))
    assert with_it.counts is not None
    assert without.counts is not None
    assert float((with_it.counts - without.counts).norm()) > 0.9
    with_it, without = (sent(part, [40.0, -40.0] * K) for part in (records(), records().take(torch.arange(19))))
    assert float((flat(with_it) - flat(without)).norm()) == pytest.approx(CLIP)


def test_prices_that_are_not_finite_leave_out_every_record() -> None:
    found = sent(records(), [float("nan")] * (K * CLASSES))
    assert found.counts is not None
    assert not flat(found).any()
    assert not found.counts.any()


def test_an_empty_batch_is_a_batch() -> None:
    found = sent(records(), round_=replace(ROUND, rates=(0.0,) * K))
    assert found.counts is not None
    assert found.counts.shape == (K, CLASSES)
    assert not flat(found).any()
    assert not found.counts.any()


@pytest.mark.parametrize(("round_", "prices", "said"), [
    (replace(ROUND, query=GroupSizes()), PRICES, "comes with a histogram of predictions, but .* is GroupSizes"),
    (ROUND, PRICES[:-1], "sent 5 prices for 3 groups and 2 classes")])
def test_a_request_that_does_not_fit_is_refused(round_: Round, prices: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sent(records(), prices, round_)


def test_counts_alone_cannot_be_asked_for() -> None:
    data = records()
    node = Node({0: Parts(data, data, data)}, model(), "cpu")
    weights = {name: p.detach() for name, p in node.model.named_parameters()}
    for rates in ((1.0,) * K, (0.0,) * K):
        with pytest.raises(ValueError, match="of scores, not of gradient norms"):
            node.counts(weights, replace(ROUND, rates=rates))
