"""What a node does to the model that it computes with, and which batch it keeps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.datasets.grouped import LARGEST_WEIGHT
from fedfair.mechanisms.clipping import (
    ClipRule,
    Flat,
    Global,
    GlobalAdapt,
    PerGroup,
    Reweighted,
    Unclipped,
    sensitivity,
)
from fedfair.mechanisms.counting import Above, AboveAndBelow, AtMost, CountQuery, GroupSizes
from fedfair.mechanisms.noise import Trust
from fedfair.mechanisms.randomness import poisson
from fedfair.models.find import build
from fedfair.node.node import ClientError, Node
from fedfair.node.noisy_sums import Contribution
from fedfair.protocol.round import LocalTraining, Round
from tests.for_each import for_each


class Viewed(nn.Module):
    """Model that only works while its convolution's output is contiguous."""

    def __init__(self, kernel: int, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, 3, kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Return two of the convolution's outputs for each example: `[B, 2]`."""
        return self.convolution(x).view(len(x), -1)[:, :2]


class Overwriting(nn.Linear):
    """Layer that writes over its inputs."""

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs of positive inputs."""
        return super().forward(x.relu_())


def hosted(model: nn.Module, x: Tensor) -> None:
    """Compute with the model twice, at contiguous weights."""
    zeros = torch.zeros(len(x), dtype=torch.long)
    data = GroupedDataset(x, zeros, zeros, ("everybody",), 2)
    host = Node({0: Parts(data, data, data)}, model, "cpu")
    for _ in range(2):
        host.evaluate({name: value.detach().clone().contiguous() for name, value in model.named_parameters()}, "test",
                      gradient_norms=True)


@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_model_in_order_stays_so(kernel: int, channels: int) -> None:
    model = Viewed(kernel, channels)
    before = model.convolution.weight.stride()
    hosted(model, torch.randn(4, channels, 3, 3))
    assert model.convolution.weight.stride() == before


def test_a_model_with_its_channels_last_stays_so() -> None:
    model, x = build("lenet", (), (1, 28, 28), 2, 0, torch.float32), torch.randn(4, 1, 28, 28)
    assert isinstance(model, nn.Sequential)
    before = [parameter.stride() for parameter in model.parameters()]
    hosted(model, x)
    assert [parameter.stride() for parameter in model.parameters()] == before
    for part in (model[:1], model[:4]):
        assert part(x).is_contiguous(memory_format=torch.channels_last)
        assert not part(x).is_contiguous()


def test_a_batch_is_kept_for_equal_weights_in_one_round_alone() -> None:
    """The weights are those of a server in this process, which changes them in place."""
    model, zeros = build("logistic", (), (3,), 2, 0, torch.float64), torch.zeros(40, dtype=torch.long)
    data = GroupedDataset(torch.randn(40, 3, dtype=torch.float64), zeros, zeros, ("everybody",), 2)
    host = Node({0: Parts(data, data, data)}, model, "cpu")
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    first = Round(key="0", step=3, rates=(0.5,), noise_multiplier=1.0, trust=Trust.CENTRAL, clients=1)
    kept = host.batch(weights, first)
    assert host.batch({name: value.clone() for name, value in weights.items()}, first) is kept
    for other in (replace(first, step=4), replace(first, key="1"), replace(first, rates=(0.9,))):
        assert host.batch(weights, other) is not kept
    kept = host.batch(weights, first)
    before = kept.probe.norms.clone()
    next(iter(weights.values())).add_(1.0)
    assert not torch.equal(host.batch(weights, first).probe.norms, before)


def test_a_model_that_overwrites_its_inputs_changes_no_record() -> None:
    """Also where a batch is all of them, as in methods that take every record."""
    model = Overwriting(3, 2).double()
    zeros, x = torch.zeros(40, dtype=torch.long), torch.randn(40, 3, dtype=torch.float64)
    data = GroupedDataset(x.clone(), zeros, zeros, ("everybody",), 2)
    host = Node({0: Parts(data, data, data)}, model, "cpu")
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    host.batch(weights, Round(key="0", step=0, rates=(1.0,), noise_multiplier=1.0, trust=Trust.CENTRAL, clients=1))
    assert torch.equal(host.clients.together.train.x, x)


def test_rates_for_too_few_groups_are_refused() -> None:
    """Else the noise would follow the clip norms of some groups alone."""
    model, zeros = build("logistic", (), (3,), 2, 0, torch.float64), torch.zeros(40, dtype=torch.long)
    data = GroupedDataset(torch.randn(40, 3, dtype=torch.float64), zeros, torch.arange(40) % 3, ("a", "b", "c"), 2)
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    round_ = Round(key="0", step=0, rates=(0.5, 0.5), noise_multiplier=1.0, trust=Trust.CENTRAL, clients=1,
                   rule=PerGroup((1.0, 2.0)))
    with pytest.raises(ValueError, match="sampling rates of 2 groups, but there are 3: give one for each"):
        Node({0: Parts(data, data, data)}, model, "cpu").gradient_sum(weights, round_)


RECORDS, BATCH = 40, 2  # of every client here: 20 steps in a local epoch


def local_epoch(step: int, noise: tuple[float, ...] = (0.0, 0.0), weights: tuple[float, ...] = (0.5, 0.5)
                ) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Run one round of two clients whose records are all zeros, so that a weight only moves by noise.

    Returns how far the weights moved, the noiseless counts of the two clients together, and the numbers of their
    records.
    """
    model, zeros = build("logistic", (), (400,), 2, 0, torch.float64), torch.zeros(RECORDS, dtype=torch.long)
    records = [torch.arange(RECORDS) + first for first in (0, RECORDS)]
    data = [GroupedDataset(torch.zeros(RECORDS, 400, dtype=torch.float64), zeros, zeros, ("everybody",), 2, records=own)
            for own in records]
    host = Node({number: Parts(own, own, own) for number, own in enumerate(data)}, model, "cpu")
    local = LocalTraining(batch_size=BATCH, optimizer="sgd", learning_rate=1.0, weight_decay=0.0, momentum=0.0,
                          noise_multipliers=noise, weights=weights, sizes=(RECORDS, RECORDS))
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    found = host.local_epochs(start, Round(
        key="5", step=step, rates=(0.5,), noise_multiplier=noise[0], count_noise_multiplier=0.0, trust=Trust.CENTRAL,
        clients=2, rule=Flat(1.0), query=GroupSizes(), local=local))
    assert found.counts is not None
    name = next(name for name, value in start.items() if value.dim() == 2)
    return (found.sums[name] - start[name]).flatten(), found.counts, records


@pytest.mark.parametrize("client", [0, 1])
def test_every_client_trains_with_its_own_noise_divided_by_its_public_batch_size(client: int) -> None:
    """Hazards 2 and 7: batches of two records on average, many of them of one, or of three and more."""
    noise, only = (1.0, 5.0), (1.0 - client, float(client))
    moved, _, _ = local_epoch(3, noise, only)
    drawn = (moved / (noise[client] / BATCH * math.sqrt(RECORDS / BATCH))).numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(drawn * wrong, "norm").pvalue < 1e-3


def test_counts_of_a_local_epoch_are_the_mean_over_its_own_steps_of_each_clients_batches() -> None:
    """Steps are numbered through all rounds: no two of them share a batch, nor their noise."""
    for step in (0, 1, 2):
        _, counts, records = local_epoch(step)
        steps = range(20 * step, 20 * (step + 1))
        met = sum(len(poisson(5, now, own, BATCH / RECORDS)) for now in steps for own in records)
        assert counts.tolist() == pytest.approx([met / 20])


def test_no_two_local_epochs_share_their_noise() -> None:
    moved = torch.stack([local_epoch(step, (1.0, 1.0), only)[0]
                         for step in (0, 1, 2) for only in ((1.0, 0.0), (0.0, 1.0))])
    assert float(torch.corrcoef(moved).fill_diagonal_(0).abs().max()) < 5 / 800**0.5


@for_each(("trust", "variance"), [(Trust.CENTRAL, 0.0), (Trust.DISTRIBUTED, 3 / 20), (Trust.LOCAL, 3.0)])
@for_each("exchange", ["counts", "gradient_sum"])
def test_counts_carry_the_share_of_noise_of_every_client_here(exchange: str, trust: Trust, variance: float) -> None:
    """Hazards 3 and 10: three of twenty clients, without records, over many steps."""
    model, none = build("logistic", (), (2,), 2, 0, torch.float64), torch.zeros(0, dtype=torch.long)
    empty = GroupedDataset(torch.zeros(0, 2, dtype=torch.float64), none, none, tuple("abcdefghij"), 2)
    host = Node({number: Parts(empty, empty, empty) for number in range(3)}, model, "cpu")
    weights = {name: value.detach() for name, value in model.named_parameters()}
    first = Round(key="5", step=0, rates=(0.5,) * 10, noise_multiplier=0.0, count_noise_multiplier=7.0, trust=trust,
                  clients=20, rule=Flat(1.0), query=GroupSizes())
    counts = [getattr(host, exchange)(weights, replace(first, step=step)).counts for step in range(100)]
    drawn = torch.cat(counts).numpy()
    if trust is Trust.CENTRAL:
        assert not drawn.any()
        return
    accepts = [stats.kstest(drawn / (7.0 * math.sqrt(variance)) * factor, "norm").pvalue > 1e-3
               for factor in (1, 2 / 3, 3 / 2)]
    assert accepts == [True, False, False]


def test_no_number_is_drawn_twice() -> None:
    """Sums and counts, clients and steps: the difference of two releases with one noise would hold none."""
    model, none = build("logistic", (), (2,), 2, 0, torch.float64), torch.zeros(0, dtype=torch.long)
    empty = GroupedDataset(torch.zeros(0, 2, dtype=torch.float64), none, none, tuple("abcdefghij"), 2)
    weights, drawn = {name: value.detach() for name, value in model.named_parameters()}, []
    for client in range(3):
        for step in range(3):
            found = Node({client: Parts(empty, empty, empty)}, model, "cpu").gradient_sum(weights, Round(
                key="5", step=step, rates=(0.5,) * 10, noise_multiplier=1.0, count_noise_multiplier=1.0,
                trust=Trust.LOCAL, clients=3, rule=Flat(1.0), query=GroupSizes()))
            assert found.counts is not None
            drawn += [value.flatten() for value in (*found.sums.values(), found.counts)]
    numbers = torch.cat(drawn)
    assert len(numbers.unique()) == len(numbers) == 9 * (2 * 2 + 2 + 10)


@for_each("rule", [Flat(0.5), PerGroup((0.5, 1.0)), Global(0.5, 1.0), GlobalAdapt(0.5, 1.0),
                   Reweighted((0.5, 0.5), (1.0, 3.0))])
@for_each(("query", "bad"), [
    (GroupSizes(), math.nan), (AtMost(0.5), math.inf), (Above(0.5), -math.inf), (AboveAndBelow((0.5, 0.5)), math.nan)])
def test_a_record_whose_gradient_is_not_finite_is_as_if_it_had_not_been_drawn(rule: ClipRule, query: CountQuery,
                                                                              bad: float) -> None:
    """Hazard 31: an error, or a NaN, would reveal the record."""
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 2
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    round_ = Round(key="0", step=0, rates=(1.0, 1.0), noise_multiplier=0.0, count_noise_multiplier=0.0,
                   trust=Trust.CENTRAL, clients=1, rule=rule, query=query)

    def answer(x: Tensor) -> Contribution:
        """Return the release of a node with these records."""
        data = GroupedDataset(x, labels[: len(x)], labels[: len(x)], ("a", "b"), 2)
        return Node({0: Parts(data, data, data)}, model, "cpu").gradient_sum(weights, round_)

    without, broken = answer(x[:-1]), x.clone()
    broken[-1, 2] = bad
    found = answer(broken)
    assert all(torch.equal(found.sums[name], value) for name, value in without.sums.items())
    assert without.counts is not None
    assert found.counts is not None
    assert torch.equal(found.counts, without.counts)


@settings(deadline=None, max_examples=60)
@given(weight=st.one_of(st.floats(0, LARGEST_WEIGHT), st.sampled_from([0.0, 1e-300, 1e-38, 1.0, LARGEST_WEIGHT])),
       scale=st.floats(-30, 30), rule=st.sampled_from([
           Flat(0.5), Flat(1e-3), PerGroup((0.5, 1.0)), Global(0.5, 1.0), GlobalAdapt(0.5, 1.0),
           Reweighted((0.5, 0.5), (1.0, 3.0))]))
def test_a_record_of_any_weight_adds_no_more_than_the_sensitivity(weight: float, scale: float, rule: ClipRule) -> None:
    """A weight after clipping would add up to a million times that."""
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    x[-1] *= 10**scale
    labels, weights = torch.arange(6) % 2, torch.tensor([0.5, 2.0, 1.0, 3.0, 0.1, weight], dtype=torch.float64)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    values = {name: parameter.detach() for name, parameter in model.named_parameters()}
    round_ = Round(key="0", step=0, rates=(1.0, 1.0), noise_multiplier=0.0, trust=Trust.CENTRAL, clients=1, rule=rule)
    data = GroupedDataset(x, labels, labels, ("a", "b"), 2, weight=weights)
    sums = [Node({0: Parts(part, part, part)}, model, "cpu").gradient_sum(values, round_).sums
            for part in (data, data.take(torch.arange(5)))]
    added = torch.stack([(sums[0][name] - sums[1][name]).double().square().sum() for name in values]).sum().sqrt()
    assert added <= sensitivity(rule, 2) * (1 + 1e-5) + 1e-6


@pytest.mark.parametrize("rule", [Unclipped(), Flat(1e6)])
def test_a_weight_of_two_counts_as_two_records(rule: ClipRule) -> None:
    x, labels = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1])
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    values = {name: parameter.detach() for name, parameter in model.named_parameters()}
    round_ = Round(key="0", step=0, rates=(1.0, 1.0), noise_multiplier=0.0, trust=Trust.CENTRAL, clients=1, rule=rule)
    plain = GroupedDataset(x, labels, labels, ("a", "b"), 2)
    twice = plain.take(torch.tensor([0, 1, 1, 2]))
    weighted = replace(plain, weight=torch.tensor([1.0, 2.0, 1.0, 0.0], dtype=torch.float64))
    wanted, found = (Node({0: Parts(part, part, part)}, model, "cpu").gradient_sum(values, round_).sums
                     for part in (replace(twice, records=torch.arange(4)), weighted))
    for name in values:
        torch.testing.assert_close(found[name], wanted[name])


def test_a_gradient_that_is_not_finite_names_its_client_where_nothing_is_clipped() -> None:
    x, zeros = torch.full((4, 5), math.inf), torch.zeros(4, dtype=torch.long)
    data, model = GroupedDataset(x, zeros, zeros, ("a",), 2), nn.Linear(5, 2)
    round_ = Round(key="0", step=0, rates=(1.0,), noise_multiplier=0.0, trust=Trust.CENTRAL, clients=1,
                   rule=Unclipped())
    with pytest.raises(ClientError, match="client 7 has a gradient that is not finite at step 0"):
        Node({7: Parts(data, data, data)}, model, "cpu").gradient_sum(
            {name: parameter.detach() for name, parameter in model.named_parameters()}, round_)
