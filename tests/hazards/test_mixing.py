"""Attacks by models: examples that see each other, and what a model keeps of them. Hazards 29 and 32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.models.published import loss
from fedfair.node.private_training import train_privately
from fedfair.protocol.round import LocalTraining, Round
from tests.for_each import for_each

CLIP_NORM = 1.0


class Standardise(nn.Module):
    """Batch standardisation by hand, in training alone."""

    def forward(self, h: Tensor) -> Tensor:  # noqa: D102
        return (h - h.mean(0)) / (h.std(0) + 1e-5) if self.training and len(h) > 1 else h


def standardised() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), Standardise(), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 10))


class Large(nn.Module):
    """Batch standardisation in batches above 16."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = self.first(x.flatten(1))
        return self.head(torch.relu((h - h.mean(0)) / (h.std(0) + 1e-5) if len(h) > 16 else h))


class ZeroInitialised(nn.Module):
    """Attention over the batch behind a branch and a head of zeros, as in DiT."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.branch, self.head = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)
        for layer in (self.branch, self.head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = torch.relu(self.first(x.flatten(1)))
        return self.head(h + self.branch(torch.softmax(h @ h.T / 5, 1) @ h))


class Rarely(nn.Module):
    """Sees other examples only where one of them holds a certain value, which no test can guess."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = self.first(x.flatten(1))
        return self.head(h + 5 * h.mean(0) if bool((x == 123.0).any()) else h)


def frozen_features() -> nn.Sequential:
    """Frozen layers with a BatchNorm in evaluation mode, as of a model that was trained on other data, and a head."""
    features = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()).requires_grad_(False)
    return nn.Sequential(features.eval(), nn.Linear(32, 10))


class Thawing(nn.Module):
    """Takes its BatchNorm out of evaluation mode after some batches: but it sees each example alone, and forgets it."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.calls = frozen_features(), 0

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        self.calls += 1
        self.parts[0][2].train(self.calls > 200)
        return self.parts(x)


class Trained(nn.Module):
    """Trains what is in front of its frozen BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = frozen_features()
        self.parts[0][1].requires_grad_(True)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.parts(x)


def change_by_one_record(model: nn.Module) -> float | None:
    """Return how much one record more changes the clipped sum after some steps, or None if the model is refused."""
    draws = torch.Generator().manual_seed(1)
    x, y = torch.randn(40, 1, 8, 8, generator=draws), torch.randint(10, (40,), generator=draws)
    outlier = 50 * torch.randn(1, 1, 8, 8, generator=draws)
    outlier[0, 0, 0, 0] = 123.0

    def clipped_sum(x: Tensor, y: Tensor) -> Tensor:
        probe = per_example(model, loss, x, y)
        sums = probe.weighted_sum(Flat(CLIP_NORM).coefficients(probe.norms, None))
        return torch.cat([value.flatten() for value in sums.values()])

    try:
        per_example(model, loss, x[:8], y[:8])
        with torch.no_grad():
            for layer in model.modules():
                if isinstance(layer, nn.Dropout):
                    layer.p = 0.0  # no difference by other masks
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws))
        return float((clipped_sum(torch.cat([x, outlier]), torch.cat([y, y[:1]])) - clipped_sum(x, y)).norm())
    except ValueError:
        return None


@pytest.mark.parametrize("make", [standardised, Large, ZeroInitialised, Rarely, frozen_features, Thawing, Trained])
def test_a_model_that_mixes_is_refused_or_bounded(make: Callable[[], nn.Module]) -> None:
    """Hazard 29."""
    torch.manual_seed(0)
    change = change_by_one_record(make())
    assert change is None or change <= CLIP_NORM * (1 + 1e-5)
    assert (change is None) == (make not in (Rarely, frozen_features, Thawing))


def test_frozen_features_with_a_batch_norm_keep_nothing_of_the_records() -> None:
    """Hazards 5 and 32: the head alone is trained, and the statistics stay those of other data."""
    model = nn.Sequential(nn.Linear(20, 8).requires_grad_(False), nn.BatchNorm1d(8).requires_grad_(False).eval(),
                          nn.Linear(8, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train_privately(model, *data(), plan())
    assert {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])} == {
        "2.weight", "2.bias"}
    with pytest.raises(ValueError, match=r"layer '1' \(BatchNorm1d\) mixes the examples of a batch.* freeze"):
        train_privately(model.train(), *data(), plan())
    model.eval()[0].requires_grad_(True)
    with pytest.raises(ValueError, match=r"layer '1' \(BatchNorm1d\) is frozen, but parameters in front of it are tra"):
        train_privately(model, *data(), plan())


def plan(batch_size: int = 64) -> str:
    """Return a round of local training for one client, by two groups, at random from the operating system."""
    local = LocalTraining(batch_size=batch_size, optimizer="sgd", learning_rate=0.1, weight_decay=0, momentum=0,
                          noise_multipliers=(5.0,), weights=(1.0,), sizes=(0,))
    return Round(key=None, step=0, rates=(1.0, 1.0), noise_multiplier=5.0, count_noise_multiplier=50.0,
                 trust=Trust.CENTRAL, clients=1, rule=Flat(CLIP_NORM), query=None, local=local, noise="gaussian",
                 label="0").to_json()


class Most(nn.Module):
    """Keeps the largest value that it has seen, above a bound: the first batches leave it as it is."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 2)
        self.register_buffer("most", torch.tensor(bound))
        self.calls = [0.0]

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        largest = torch.maximum(self.most, x.detach().abs().max())
        self.most.copy_(largest)
        self.calls[0] = max(self.calls[0], float(largest)) if float(largest) > 1e9 else self.calls[0]
        return self.layer(x / self.most)


def data() -> tuple[Tensor, Tensor, Tensor]:
    """Return 200 records, of which the eighth holds a number that no other has."""
    draws = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 20, generator=draws), torch.randint(2, (200,), generator=draws)
    x[7, 3] = 2e9
    return x, y, torch.zeros(200)


@pytest.mark.parametrize("bound", [10.0, 1e8])
def test_what_a_model_keeps_of_a_record_does_not_leave(bound: float) -> None:
    """Hazard 32: refused where made-up batches show it, else undone; in neither case by what the records are."""
    model = Most(bound)
    if bound == 10.0:
        with pytest.raises(ValueError, match="Most changes 'most' whenever it is given a batch"):
            train_privately(model, *data(), plan())
    else:
        train_privately(model, *data(), plan(batch_size=200))  # so that the record is drawn
    assert float(model.most) == torch.tensor(bound)
    assert model.calls == [0.0]


@for_each(("what", "x", "y", "group"), [
    ("label", torch.zeros(90, 3).long(), torch.full((90,), 5), torch.zeros(90)),
    ("label", torch.zeros(90, 3).long(), torch.full((90,), -1), torch.zeros(90)),
    ("label", torch.zeros(90, 3).long(), torch.full((90,), 0.5), torch.zeros(90)),
    ("group", torch.zeros(90, 3).long(), torch.zeros(90).long(), torch.full((90,), 2)),
    ("word", torch.full((90, 3), 9), torch.zeros(90).long(), torch.zeros(90)),
    ("word", torch.full((90, 3), -1), torch.zeros(90).long(), torch.zeros(90))])
def test_a_record_out_of_range_is_refused_before_the_training(what: str, x: Tensor, y: Tensor, group: Tensor) -> None:
    """Hazard 31: in the training it would stop the round, whenever it was drawn."""
    model = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(6, 5))
    usual = [torch.zeros(90, 3).long(), torch.zeros(90).long(), torch.zeros(90)]
    train_privately(model, *usual, plan())
    before = [value.clone() for value in model.parameters()]
    for last in (True, False):
        spoilt = [torch.cat([part[:89], bad[:1].to(part.dtype if bad.dtype != torch.float32 else bad.dtype)])
                  for part, bad in zip(usual, (x, y, group), strict=True)] if last else [x, y, group]
        with pytest.raises(ValueError, match=f"a {what} is out of range: it must be a whole number from 0 to"):
            train_privately(model, *spoilt, plan())
    assert all(map(torch.equal, before, model.parameters()))
