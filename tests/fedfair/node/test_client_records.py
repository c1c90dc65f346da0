"""What an existing app trains privately on: tensors or a loader, with any loss of one number an example."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SubsetRandomSampler, TensorDataset

from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node.private_training import ClientRecords, train_privately
from fedfair.protocol.round import LocalTraining, Round
from tests.for_each import for_each

X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
Y, GROUP = (X[:, 0] > 0).long(), torch.arange(50) % 2
DATA = TensorDataset(X, Y, GROUP)
LOCAL = LocalTraining(batch_size=1000, optimizer="sgd", learning_rate=0.5, weight_decay=0.0, momentum=0.0,
                      noise_multipliers=(0.0,), weights=(1.0,), sizes=(0,))
PLAN = Round(key=None, step=0, rates=(1.0, 1.0), noise_multiplier=0.0, trust=Trust.LOCAL, clients=1, rule=Flat(100.0),
             local=LOCAL, label="a").to_json()


def model(outputs: int = 2) -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(3, outputs)


def equal(first: nn.Module, second: nn.Module) -> bool:
    return all(torch.allclose(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@for_each("loader", [
    DataLoader(DATA), DataLoader(DATA, batch_size=16, shuffle=True), DataLoader(DATA, batch_size=16, drop_last=True),
    DataLoader(DATA, batch_sampler=[range(30), range(30, 50)])])
def test_a_loader_gives_each_record_once(loader: DataLoader) -> None:
    by_tensors, by_loader = model(), model()
    assert train_privately(by_tensors, X, Y, GROUP, PLAN) == train_privately(by_loader, loader, plan=PLAN)
    assert equal(by_tensors, by_loader)
    assert not equal(by_tensors, model())


def test_a_loader_of_a_part_gives_that_part() -> None:
    records = ClientRecords.of(DataLoader(DATA, sampler=SubsetRandomSampler([3, 1])), None, None)
    assert sorted(records.x[:, 0].tolist()) == sorted(X[[1, 3], 0].tolist())


def test_a_stream_is_read_once() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> object:
            return iter(DATA)

    assert torch.equal(ClientRecords.of(DataLoader(Stream(), batch_size=8), None, None).x, X)


def test_a_loader_that_draws_a_record_twice_is_refused() -> None:
    """Such a record would be in a batch twice, under the noise for one."""
    twice = DataLoader(DATA, sampler=RandomSampler(DATA, replacement=True, num_samples=500))
    with pytest.raises(ValueError, match="RandomSampler draws a record more than once"):
        train_privately(model(), twice, plan=PLAN)
    with pytest.raises(ValueError, match="draws a record more than once"):
        train_privately(model(), DataLoader(DATA, batch_sampler=[[0, 1], [1, 2]]), plan=PLAN)


@for_each(("records", "said"), [
    ((X,), "y or group is missing"), ((DataLoader(DATA), Y), "leave y and group out"),
    (([X],), "x is a list: give a tensor, or a torch DataLoader"),
    ((DataLoader(TensorDataset(X, Y)),), r"no \(features, targets, groups\)"),
    ((DataLoader(TensorDataset(X[:0], Y[:0], GROUP[:0])),), "the loader gives no records")])
def test_other_records_are_refused(records: tuple, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        train_privately(model(), *records, plan=PLAN)


def one_score(output: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output[:, 0], target.to(output.dtype), reduction="none")


@pytest.mark.parametrize(("loss", "outputs", "y"), [
    (one_score, 1, Y), (nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1), 2, Y),
    (lambda output, target: (output - target).square().sum(1), 1, Y[:, None].float())])
def test_any_loss_of_one_number_an_example_is_descended(loss: object, outputs: int, y: Tensor) -> None:
    """Without noise, and with all records in the batch, a step is that of plain descent along the mean."""
    trained, plain = model(outputs), model(outputs)
    train_privately(trained, X, y, GROUP, PLAN, loss=loss)
    loss(plain(X), y).mean().backward()
    torch.optim.SGD(plain.parameters(), 0.5).step()
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(trained.parameters(), plain.parameters(), strict=True))


@pytest.mark.parametrize(("loss", "said"), [
    (nn.CrossEntropyLoss(), r"the loss has the shape \[\] for 50 examples: .*reduction=\"none\""),
    (lambda output, target: output, r"the loss has the shape \[50, 2\] for 50 examples"),
    (nn.BCELoss(reduction="none"), "the loss raises ValueError for outputs of the shape"),
    (lambda output, target: F.cross_entropy(output, target, reduction="none") - output.mean(),
     "its examples interact|another loss when")])
def test_another_loss_is_refused_before_the_training(loss: object, said: str) -> None:
    trained = model()
    with pytest.raises(ValueError, match=said):
        train_privately(trained, X, Y, GROUP, PLAN, loss=loss)
    assert equal(trained, model())


def test_a_target_that_a_loss_does_not_take_is_not_quoted() -> None:
    """Flower sends the sentence to the server."""
    with pytest.raises(ValueError, match="label is out of range") as refused:
        train_privately(model(), X, Y + 73, GROUP, PLAN)
    assert "73" not in str(refused.value)
    with pytest.raises(ValueError, match="the loss raises IndexError") as refused:
        train_privately(model(), X, Y + 73, GROUP, PLAN, loss=nn.CrossEntropyLoss(reduction="none"))
    assert "73" not in str(refused.value)


def test_rates_of_another_number_of_groups_are_refused() -> None:
    plan = replace(Round.from_json(PLAN), rates=(1.0,)).to_json()
    with pytest.raises(ValueError, match="a group is out of range"):
        train_privately(model(), X, Y, GROUP, plan)
