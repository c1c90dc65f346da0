"""Models that the fast path cannot read are taken by a slower one, or refused; batches of every size."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedfair.gradients.layer_probe import Loss
from fedfair.gradients.layers import LAYERS
from fedfair.gradients.probe import per_example
from tests.fedfair.gradients.probing import (
    assert_close,
    check,
    image_model,
    made,
    randint,
    randn,
    squared_error,
    text_model,
)
from tests.for_each import for_each


class Twice(nn.Module):
    """Calls a layer twice; with `branch`, in a way that torch.func cannot follow."""

    def __init__(self, branch: bool = False) -> None:
        super().__init__()
        self.layer, self.head, self.branch = nn.Linear(4, 4), nn.Linear(4, 3), branch

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        hidden = self.layer(torch.tanh(self.layer(x)))
        return self.head(hidden * 2 if self.branch and bool((0 * x > 1).any()) else hidden)


def test_a_layer_called_twice_only_after_the_first_batch() -> None:
    class Sometimes(Twice):
        again = False

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if self.again else self.head(torch.tanh(self.layer(x)))

    model = made(Sometimes)
    check(model, randn(5, 4))
    model.again = True
    check(model, randn(5, 4))


def test_a_layer_that_a_model_holds_twice_is_left_as_it_was() -> None:
    layer = nn.Linear(4, 4)
    model, before = made(lambda: nn.Sequential(layer, nn.Tanh(), layer)), layer.weight
    for seed in range(2):
        check(model, randn(5, 4, seed=seed))
    assert layer.weight is before


class Tied(nn.Module):
    """The output layer shares the embedding's weight; `how` says by which means."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.embedding, self.head, self.how = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False), how
        if how == "tied":
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = torch.tanh(self.embedding(x)).mean(1)
        return F.linear(h, self.embedding.weight) if self.how == "functional" else self.head(h)


@for_each("how", ["tied", "functional"])
def test_a_weight_that_embeds_and_predicts_is_right_in_every_batch(how: str) -> None:
    model = made(lambda: Tied(how))
    for seed in range(3):
        check(model, randint(6, 5 + seed, 3, seed=seed))


class Scaled(nn.Module):
    """A layer of one's own; with `branch` torch.func cannot follow it."""

    def __init__(self, branch: bool = False, shape: tuple[int, ...] = (3,)) -> None:
        super().__init__()
        self.inner, self.scale, self.branch = nn.Linear(4, 3), nn.Parameter(torch.ones(shape)), branch

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = torch.tanh(self.inner(x)) * self.scale
        return h * 2 if self.branch and bool((x[0] > 0).any()) and len(x) == 0 else h


def test_a_subclass_of_a_known_layer_is_not_taken_for_it() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, 2 * self.weight.square(), self.bias)

    assert nn.Linear in LAYERS
    check(made(lambda: nn.Sequential(Doubled(4, 3), nn.Tanh())), randn(5, 4))


class Recurrent(nn.Module):
    """An LSTM over embedded words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(7, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


class Attention(nn.Module):
    """Self-attention with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(4, 2, batch_first=True), nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.norm(x + self.attention(x, x, x)[0])).mean(1)


@for_each(("make", "x"), [
    (Twice, randn(5, 4)), (lambda: Twice(branch=True), randn(5, 4)),
    (Scaled, randn(5, 4)), (lambda: Scaled(shape=()), randn(5, 4)),
    (lambda: Scaled(branch=True), randn(5, 4)), (lambda: Scaled(branch=True, shape=()), randn(5, 4)),
    (Recurrent, randint(7, 5, 3)), (Attention, randn(5, 3, 4)),
    (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2, affine=True), nn.Flatten(), nn.Linear(18, 2)),
     randn(3, 1, 5, 5)),
    (lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 3)), randn(6, 4))])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_a_model_is_right_however_it_uses_its_layers_and_parameters(make: Callable[[], nn.Module], x: Tensor) -> None:
    check(made(make), x)


def test_dropout_in_a_model_that_takes_a_slower_path() -> None:
    """Trained with Dropout switched on, as any such model is."""
    class Dropping(Scaled):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(super().forward(x), 0.5, self.training)

    probe = per_example(made(Dropping).train(), squared_error, randn(5, 4), randn(5, 3))
    assert bool(probe.norms.isfinite().all())


def test_dropout_on_the_fast_path_keeps_norms_and_sums_of_one_draw() -> None:
    model = made(lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))).train()
    probe = per_example(model, squared_error, randn(1, 4), randn(1, 3))
    total = probe.weighted_sum(torch.ones(1, dtype=torch.float64))
    assert_close(probe.norms[0], torch.cat([g.flatten() for g in total.values()]).norm())


# Layers whose first dimension is not the batch: summed gradients look right, each example's would not.


class TimeFirst(nn.Module):
    """Works on `[T, B, p]` inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(torch.tanh(self.inner(x.transpose(0, 1)))).mean(0)


class Positional(nn.Module):
    """Adds an embedding of the position, which has no batch dimension at all."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(7, 4), nn.Embedding(8, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(torch.tanh(self.words(x) + self.places(torch.arange(x.shape[1])))).mean(1)


class Folded(nn.Module):
    """Folds the positions into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(torch.tanh(self.inner(x.flatten(0, 1))).view(*x.shape[:2], -1).mean(1))


@for_each(("make", "rows"), [(TimeFirst, lambda batch: randn(batch, 4, 3)), (Folded, lambda batch: randn(batch, 4, 3)),
                             (Positional, lambda batch: randint(7, batch, 4))])
def test_a_model_need_not_work_batch_first(make: Callable[[], nn.Module], rows: Callable[[int], Tensor]) -> None:
    """Whatever its first batch is, and after it."""
    for first in (4, 6, 1):
        model = made(make)
        for batch in (first, 6, 4, 1):
            check(model, rows(batch))


# Batches.


@pytest.mark.parametrize(("make", "x"), [(text_model, randint(7, 0, 3)), (image_model, randn(0, 2, 8, 8)),
                                         (Scaled, randn(0, 4))])
def test_an_empty_batch_gives_zeros(make: Callable[[], nn.Module], x: Tensor) -> None:
    model = made(make)
    probe = per_example(model, squared_error, x, torch.zeros(0))
    sums = probe.weighted_sum(torch.zeros(0, dtype=torch.float64))
    assert probe.norms.shape == probe.losses.shape == (0,)
    assert probe.norms.dtype == torch.float64
    assert probe.dot(dict(model.named_parameters())).shape == (0,)
    assert {name: value.shape for name, value in sums.items()} == {n: p.shape for n, p in model.named_parameters()}
    assert not any(value.any() for value in sums.values())


@for_each(("make", "x"), [(text_model, randint(7, 1, 3)), (image_model, randn(1, 2, 8, 8)),
                          (Scaled, randn(1, 4)), (Recurrent, randint(7, 1, 3))])
def test_a_batch_of_one(make: Callable[[], nn.Module], x: Tensor) -> None:
    check(made(make), x)


def test_float32_is_right_to_its_own_precision() -> None:
    model, x, y = made(image_model), randn(6, 2, 8, 8), randn(6, 3)
    probe = per_example(copy.deepcopy(model).float(), squared_error, x.float(), y.float())
    assert probe.norms.dtype == torch.float32
    torch.testing.assert_close(probe.norms.double(), per_example(model, squared_error, x, y).norms, rtol=1e-5, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_example_that_is_not_finite_shows_in_its_norm_alone(bad: float) -> None:
    x = randn(4, 2, 8, 8)
    model = made(image_model)
    clean = per_example(model, squared_error, x, torch.zeros(4, 3)).norms
    x[2, 0, 0, 0] = bad
    norms = per_example(model, squared_error, x, torch.zeros(4, 3)).norms
    assert not bool(norms[2].isfinite())
    torch.testing.assert_close(norms[[0, 1, 3]], clean[[0, 1, 3]])


# What is refused.


@for_each(("layer", "x"), [
    (nn.BatchNorm1d(3), randn(4, 3)), (nn.BatchNorm2d(3), randn(4, 3, 5, 5)), (nn.SyncBatchNorm(3), randn(4, 3, 5)),
    (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), randn(4, 3, 5))])
def test_layers_that_mix_examples_are_refused_by_name(layer: nn.Module, x: Tensor) -> None:
    model = nn.Sequential()
    model.add_module("first", nn.Sequential(nn.Tanh(), layer))
    with pytest.raises(ValueError, match=rf"layer 'first\.1' \({type(layer).__name__}\) mixes the examples"):
        per_example(model.double(), squared_error, x, x)


class RunningMean(nn.Module):
    """Keeps a mean of what it is given, and leaves the output as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
        return self.layer(x)


def test_a_model_that_keeps_something_of_a_batch_is_refused_and_left_as_it_was() -> None:
    model = made(RunningMean)
    with pytest.raises(ValueError, match="RunningMean changes 'mean' whenever it is given a batch"):
        per_example(model, squared_error, randn(5, 4), randn(5, 3))
    assert not model.mean.any()


def test_an_embedding_that_scales_its_weights_is_refused() -> None:
    model = made(lambda: nn.Sequential(nn.Embedding(7, 4, max_norm=100.0), nn.Flatten(), nn.Linear(12, 3)))
    with pytest.raises(ValueError, match=r"layer '0' \(Embedding\) has max_norm = 100.0"):
        per_example(model, squared_error, randint(7, 5, 3), randn(5, 3))


class Centred(nn.Module):
    """Subtracts the batch's mean, `always` or only while it is trained."""

    def __init__(self, always: bool = True) -> None:
        super().__init__()
        self.layer, self.always = nn.Linear(4, 3), always

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = self.layer(x)
        return h - h.mean(0) if self.always or self.training else h


@for_each(("batch", "always"), [(5, True), (1, True), (5, False)])
def test_a_model_that_subtracts_the_batch_mean_is_refused(batch: int, always: bool) -> None:
    model = made(lambda: Centred(always)).train(not always)
    with pytest.raises(ValueError, match=r"Centred .* its examples interact"):
        per_example(model, squared_error, randn(batch, 4), randn(batch, 3))


@for_each("loss", [F.mse_loss, lambda o, y: (o - y).square(), lambda o, y: (o - y).sum(1)[:, None]])
def test_a_loss_that_is_not_one_number_an_example_is_refused_and_the_model_left_as_it_was(loss: Loss) -> None:
    model = made(lambda: nn.Linear(4, 3)).train()
    with pytest.raises(ValueError, match="it must be one number an example"):
        per_example(model, loss, randn(5, 4), randn(5, 3))
    assert all(p.requires_grad for p in model.parameters())
    assert model.training
    assert not model._forward_hooks


@for_each("batch", [5, 0])
@for_each("make", [nn.Flatten, lambda: nn.Linear(4, 3).requires_grad_(False)])
def test_a_model_without_trained_parameters_is_refused(make: Callable[[], nn.Module], batch: int) -> None:
    with pytest.raises(ValueError, match="nothing to train"):
        per_example(made(make), squared_error, randn(batch, 4), randn(batch, 4))


# The model is left as it was.


@for_each(("make", "x"), [(image_model, randn(4, 2, 8, 8)), (Scaled, randn(4, 4)), (Twice, randn(4, 4)),
                          (Recurrent, randint(7, 4, 3))])
@for_each("training", [True, False])
def test_a_probe_leaves_the_model_as_it_was(make: Callable[[], nn.Module], x: Tensor, training: bool) -> None:
    model = made(make).train(training)
    first = next(iter(model.children())).eval()
    next(model.parameters()).requires_grad_(False)
    for p in model.parameters():
        p.grad = torch.full_like(p, 7.0)
    before, flags = copy.deepcopy(model.state_dict()), [p.requires_grad for p in model.parameters()]
    grads = [p.grad for p in model.parameters()]
    for _ in range(2):
        probe = per_example(model, squared_error, x, torch.zeros(4, 3, dtype=torch.float64))
        assert not any(t.requires_grad for t in (probe.norms, probe.losses))
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is g and bool((g == 7).all()) for p, g in zip(model.parameters(), grads, strict=True))
    assert model.training is training
    assert not first.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_an_embedding_may_have_sparse_gradients() -> None:
    words, target = torch.tensor([[0, 1], [3, 3], [4, 0]]), torch.zeros(3, 2, dtype=torch.float64)
    models = [made(lambda sparse=sparse: nn.Sequential(nn.Embedding(5, 3, sparse=sparse), nn.Flatten(),
                                                       nn.Linear(6, 2))) for sparse in (False, True)]
    models[1].load_state_dict(models[0].state_dict())
    dense, sparse = (per_example(model, squared_error, words, target) for model in models)
    assert torch.allclose(dense.norms, sparse.norms)
