"""The probe against one example at a time through autograd, for every layer and every way of using one."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus import GradSampleModule
from torch import Tensor, nn
from torch.nn import functional as F

from fedfair import gradients
from fedfair.gradients import Loss, Probe, per_example
from fedfair.layers import LAYERS, Lookups, Materialised, OuterProducts

few = settings(deadline=None, max_examples=15)
small = st.integers(1, 5)
seeds = st.integers(0, 10**6)


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    return (output.flatten(1) - target).square().sum(1)


def one_by_one(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Each example's gradients `[B, *shape]` and losses `[B]`, by a backward pass of its own."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows, losses = [], []
    for i in range(len(x)):
        value = loss(model(x[i : i + 1]), y[i : i + 1]).sum()
        found = torch.autograd.grad(value, list(trained.values()), allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for g, p in zip(found, trained.values(), strict=True)])
        losses.append(value.detach())
    return {name: torch.stack([row[j] for row in rows]) for j, name in enumerate(trained)}, torch.stack(losses)


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    assert found.shape == expected.shape
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * scale)


def check(model: nn.Module, x: Tensor, y: Tensor | None = None, loss: Loss = squared_error,
          seed: int = 0, tolerance: float = 1e-10) -> Probe:
    """Assert that the probe says of `x` what the oracle says."""
    draw = torch.Generator().manual_seed(seed)
    if y is None:
        with torch.no_grad():
            y = torch.randn(model(x).flatten(1).shape, generator=draw, dtype=torch.float64)
    expected, losses = one_by_one(model, loss, x, y)
    flat = torch.cat([g.flatten(1) for g in expected.values()], 1)
    probe = per_example(model, loss, x, y)
    assert_close(probe.losses, losses, tolerance)
    assert_close(probe.norms, flat.norm(dim=1), tolerance)
    direction = {name: torch.randn(g.shape[1:], generator=draw, dtype=g.dtype) for name, g in expected.items()}
    assert_close(probe.dot(direction), flat @ torch.cat([d.flatten() for d in direction.values()]), tolerance)
    coefficients = torch.randn(len(x), generator=draw, dtype=flat.dtype)
    sums = probe.weighted_sum(coefficients)
    assert set(sums) == set(expected)
    for name, g in expected.items():
        assert_close(sums[name], torch.einsum("b,b...->...", coefficients, g), tolerance)
    return probe


def check_recorded(model: nn.Module, x: Tensor, seed: int = 0) -> Probe:
    """Like `check`, and the fast path did it: a broken layer would otherwise hide behind the slower ones."""
    probe = check(model, x, seed=seed)
    assert gradients._paths.get(model, gradients._recorded) is gradients._recorded
    return probe


def parts_of(probe: Probe, name: str) -> type:
    """In which form the probe keeps the gradients of one parameter."""
    (kind,) = [type(part) for part in probe._layers
               if getattr(part, "name", None) == name or name in getattr(part, "gradients", {})]
    return kind


def made(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A float64 model with parameters from a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().double()


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)


def randint(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed + 1))


# Single layers.


@few
@given(small, small, small, st.booleans(), seeds)
def test_linear_on_vectors(batch: int, p: int, q: int, bias: bool, seed: int) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(p, q, bias), nn.Tanh()), seed)
    probe = check_recorded(model, randn(batch, p, seed=seed), seed)
    assert parts_of(probe, "0.weight") is OuterProducts


@few
@given(small, st.integers(2, 5), small, small, st.booleans(), seeds)
def test_linear_on_sequences_in_both_branches(b: int, t: int, p: int, q: int, bias: bool, seed: int) -> None:
    for width, kind in ((1, Materialised), (4 * t, OuterProducts)):  # t (p + q) against p q
        model = made(lambda width=width: nn.Sequential(nn.Linear(p * width, q * width, bias), nn.Tanh()), seed)
        probe = check_recorded(model, randn(b, t, p * width, seed=seed), seed)
        if kind is OuterProducts or p == q == 1:
            assert parts_of(probe, "0.weight") is kind


def test_linear_on_two_dimensions_of_positions() -> None:
    check_recorded(made(lambda: nn.Linear(3, 4)), randn(2, 3, 2, 3))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """A Conv2d and an input for it."""
    pair = lambda low, high: draw(st.tuples(st.integers(low, high), st.integers(low, high)))  # noqa: E731
    kernel, dilation, stride, groups = pair(1, 3), pair(1, 2), pair(1, 3), draw(st.sampled_from([1, 1, 2, 3]))
    padding = draw(st.one_of(st.sampled_from(["same", "valid"]), st.integers(0, 2), st.just(pair(0, 2))))
    if padding == "same":
        stride = (1, 1)
    mode = draw(st.sampled_from(["zeros", "zeros", "circular", "reflect", "replicate"]))
    seed, bias = draw(seeds), draw(st.booleans())
    inputs, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3))
    layer = made(lambda: nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias, mode), seed)
    return nn.Sequential(layer, nn.Tanh()), randn(draw(st.integers(1, 4)), inputs, *pair(5, 8), seed=seed)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@settings(deadline=None, max_examples=60)
@given(convolutions())
def test_conv2d_of_any_stride_padding_dilation_and_groups(drawn: tuple[nn.Module, Tensor]) -> None:
    check_recorded(*drawn)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(4, 8), st.sampled_from([1, 2]), st.sampled_from([1, 2]),
       st.sampled_from(["zeros", "circular", "reflect"]), st.booleans(), seeds)
def test_conv2d_by_patches(b: int, c: int, o: int, stride: int, dilation: int, mode: str, bias: bool,
                           seed: int) -> None:
    """A large kernel on a small map: comparing patches is cheaper than writing the gradients down."""
    model = made(lambda: nn.Sequential(nn.Conv2d(c, o, 3, stride, 1, dilation, 1, bias, mode), nn.Tanh()), seed)
    probe = check_recorded(model, randn(b, c, 2 * dilation, 2 * dilation, seed=seed), seed)
    assert parts_of(probe, "0.weight") in (OuterProducts, Materialised)


@pytest.mark.parametrize(("layer", "size", "kind"), [
    (lambda: nn.Conv2d(6, 40, 3), 4, OuterProducts),
    (lambda: nn.Conv2d(6, 40, 3, padding="same", dilation=2), 3, OuterProducts),
    (lambda: nn.Conv2d(6, 40, 3, padding="same"), 6, Materialised),
    (lambda: nn.Conv2d(6, 40, (3, 2), stride=2, padding=1, bias=False), 3, OuterProducts),
    (lambda: nn.Conv2d(6, 40, 3, padding=1, stride=2, dilation=2, padding_mode="circular"), 5, OuterProducts),
    (lambda: nn.Conv2d(6, 40, 3, groups=2), 4, Materialised),
    (lambda: nn.Conv2d(1, 2, 3), 8, Materialised),
])
def test_conv2d_takes_the_cheaper_branch(layer: Callable[[], nn.Module], size: int, kind: type) -> None:
    model = made(layer)
    assert parts_of(check_recorded(model, randn(3, model.in_channels, size, size)), "weight") is kind


@few
@given(small, small, st.integers(2, 6), small, st.sampled_from([None, 0, 1, -1]), seeds)
def test_embedding(batch: int, length: int, words: int, width: int, padding: int | None, seed: int) -> None:
    model = made(lambda: nn.Sequential(nn.Embedding(words, width, padding), nn.Tanh()), seed)
    assert parts_of(check_recorded(model, randint(words, batch, length, seed=seed), seed), "0.weight") is Lookups
    check_recorded(made(lambda: nn.Embedding(words, width, padding), seed), randint(words, batch, seed=seed), seed)


@few
@given(small, small, small, st.integers(2, 5), st.booleans(), seeds)
def test_layer_norm(b: int, t: int, c: int, p: int, bias: bool, seed: int) -> None:
    for normalised, x in (((p,), (b, p)), ((p,), (b, t, p)), ((c, p), (b, c, p)), ((c, p), (b, t, c, p))):
        model = made(lambda n=normalised: nn.Sequential(nn.LayerNorm(n, bias=bias), nn.Tanh()), seed)
        with torch.no_grad():
            model[0].weight.copy_(randn(*normalised, seed=seed))
        check_recorded(model, randn(*x, seed=seed), seed)


@few
@given(small, st.sampled_from([1, 2]), st.sampled_from([2, 4]), st.integers(2, 4), seeds)
def test_group_norm(b: int, groups: int, channels: int, side: int, seed: int) -> None:
    for shape in ((b, channels, side), (b, channels, side, side + 1)):
        model = made(lambda: nn.Sequential(nn.GroupNorm(groups, channels), nn.Tanh()), seed)
        with torch.no_grad():
            model[0].weight.copy_(randn(channels, seed=seed))
        check_recorded(model, randn(*shape, seed=seed), seed)


# Layers together.


def text_model() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 6, padding_idx=0), nn.LayerNorm(6), nn.Flatten(), nn.Linear(18, 4))


def image_model(inplace: bool = True) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Tanh(), nn.MaxPool2d(2),
                         nn.Conv2d(4, 6, 3), nn.ReLU(inplace), nn.Flatten(), nn.Linear(24, 3))


@few
@given(small, seeds)
def test_embedding_then_layer_norm_then_linear(batch: int, seed: int) -> None:
    check_recorded(made(text_model, seed), randint(7, batch, 3, seed=seed), seed)


@few
@given(small, seeds)
def test_convolutions_with_group_norm_pooling_and_linear(batch: int, seed: int) -> None:
    check_recorded(made(image_model, seed), randn(batch, 2, 8, 8, seed=seed), seed)


@pytest.mark.parametrize("after", [nn.ReLU, nn.ELU, nn.LeakyReLU, nn.Hardtanh])
def test_activations_that_overwrite_a_layers_output(after: type[nn.Module]) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(4, 5), after(inplace=True), nn.LayerNorm(5), after(inplace=True),
                                       nn.Linear(5, 3), after(inplace=True)))
    check_recorded(model, randn(6, 4))


def test_frozen_parameters_are_left_out() -> None:
    model = made(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.LayerNorm(5), nn.Linear(5, 3)))
    for name in ("0.weight", "2.bias", "3.weight", "4.weight", "4.bias"):
        model.get_parameter(name).requires_grad_(False)
    probe = check_recorded(model, randn(6, 4))
    assert set(probe.weighted_sum(torch.ones(6, dtype=torch.float64))) == {"0.bias", "2.weight", "3.bias"}


class Residual(nn.Module):
    """Adds a layer's output to its input, and calls a layer in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.unused = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 9)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        self.unused(x)
        return self.outer(x + torch.tanh(self.inner(x)))


def test_a_layer_whose_output_the_loss_does_not_use_has_zero_gradients() -> None:
    probe = check_recorded(made(Residual), randn(5, 4))
    assert not probe.weighted_sum(torch.ones(5, dtype=torch.float64))["unused.weight"].any()


def test_a_layer_that_is_never_called_has_zero_gradients() -> None:
    model = made(lambda: nn.Sequential(nn.Linear(4, 3)))
    model[0].register_module("spare", made(lambda: nn.Linear(2, 2)))
    check_recorded(model, randn(5, 4))


def test_a_layer_called_with_a_keyword() -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(input=x).tanh()

    check_recorded(made(Keyword), randn(5, 4))


# Models that the fast path cannot read.


class Twice(nn.Module):
    """Calls a layer twice; with `branch`, in a way that torch.func cannot follow."""

    def __init__(self, branch: bool = False) -> None:
        super().__init__()
        self.layer, self.head, self.branch = nn.Linear(4, 4), nn.Linear(4, 3), branch

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        hidden = self.layer(torch.tanh(self.layer(x)))
        return self.head(hidden * 2 if self.branch and bool((x > 100).any()) else hidden)


def test_a_layer_called_twice() -> None:
    check(made(Twice), randn(5, 4))


def test_a_layer_called_twice_in_a_model_that_torch_func_refuses() -> None:
    check(made(lambda: Twice(branch=True)), randn(5, 4))


def test_a_layer_called_twice_only_after_the_first_batch() -> None:
    class Sometimes(Twice):
        again = False

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if self.again else self.head(torch.tanh(self.layer(x)))

    model = made(Sometimes)
    check(model, randn(5, 4))
    model.again = True
    check(model, randn(5, 4))


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


@pytest.mark.parametrize("how", ["tied", "functional"])
def test_a_weight_that_embeds_and_predicts(how: str) -> None:
    check(made(lambda: Tied(how)), randint(6, 5, 3))


@pytest.mark.parametrize("how", ["tied", "functional"])
def test_a_weight_that_embeds_and_predicts_stays_right_after_the_first_batch(how: str) -> None:
    model = made(lambda: Tied(how))
    for seed in range(3):
        check(model, randint(6, 5 + seed, 3, seed=seed))


class Scaled(nn.Module):
    """A layer of one's own; with `branch` torch.func cannot follow it."""

    def __init__(self, branch: bool = False) -> None:
        super().__init__()
        self.inner, self.scale, self.branch = nn.Linear(4, 3), nn.Parameter(torch.ones(3)), branch

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = torch.tanh(self.inner(x)) * self.scale
        return h * 2 if self.branch and bool((x[0] > 0).any()) and len(x) == 0 else h


@pytest.mark.parametrize("branch", [False, True])
def test_a_parameter_of_ones_own(branch: bool) -> None:
    check(made(lambda: Scaled(branch)), randn(5, 4))


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


def test_lstm() -> None:
    check(made(Recurrent), randint(7, 5, 3))


def test_multihead_attention() -> None:
    check(made(Attention), randn(5, 3, 4))


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


@pytest.mark.parametrize("batch", [4, 6, 1])
def test_a_model_that_works_time_first(batch: int) -> None:
    check(made(TimeFirst), randn(batch, 4, 3))


@pytest.mark.parametrize("batch", [4, 6, 1])
def test_a_model_that_embeds_positions(batch: int) -> None:
    check(made(Positional), randint(7, batch, 4))


@pytest.mark.parametrize("batch", [4, 6, 1])
def test_a_model_that_folds_positions_into_the_batch(batch: int) -> None:
    check(made(Folded), randn(batch, 4, 3))


@pytest.mark.parametrize("make", [TimeFirst, Positional, Folded])
def test_another_batch_size_after_the_first_batch(make: Callable[[], nn.Module]) -> None:
    model = made(make)
    for batch in (6, 4, 1):
        check(model, randint(7, batch, 4) if make is Positional else randn(batch, 4, 3))


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


@pytest.mark.parametrize(("make", "x"), [(text_model, randint(7, 1, 3)), (image_model, randn(1, 2, 8, 8)),
                                         (Scaled, randn(1, 4)), (Recurrent, randint(7, 1, 3))])
def test_a_batch_of_one(make: Callable[[], nn.Module], x: Tensor) -> None:
    check(made(make), x)


def test_float32_is_right_to_its_own_precision() -> None:
    model, x = made(image_model), randn(6, 2, 8, 8)
    y = randn(6, 3)
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


@pytest.mark.parametrize(("layer", "x"), [
    (nn.BatchNorm1d(3), randn(4, 3)), (nn.BatchNorm2d(3), randn(4, 3, 5, 5)), (nn.SyncBatchNorm(3), randn(4, 3, 5)),
    (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), randn(4, 3, 5))])
def test_layers_that_mix_examples_are_refused_by_name(layer: nn.Module, x: Tensor) -> None:
    model = nn.Sequential()
    model.add_module("first", nn.Sequential(nn.Tanh(), layer))
    with pytest.raises(ValueError, match=rf"layer 'first\.1' \({type(layer).__name__}\) mixes the examples"):
        per_example(model.double(), squared_error, x, x)


def test_instance_norm_without_running_statistics_is_taken() -> None:
    check(made(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2, affine=True), nn.Flatten(),
                                     nn.Linear(18, 2))), randn(3, 1, 5, 5))


class Centred(nn.Module):
    """Subtracts the batch's mean, `always` or only while it is trained."""

    def __init__(self, always: bool = True) -> None:
        super().__init__()
        self.layer, self.always = nn.Linear(4, 3), always

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = self.layer(x)
        return h - h.mean(0) if self.always or self.training else h


def test_a_model_that_subtracts_the_batch_mean_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Centred.* its examples interact"):
        per_example(made(Centred), squared_error, randn(5, 4), randn(5, 3))


def test_a_model_that_subtracts_the_batch_mean_is_refused_after_a_batch_of_one() -> None:
    model = made(Centred)
    per_example(model, squared_error, randn(1, 4), randn(1, 3))
    with pytest.raises(ValueError, match="its examples interact"):
        per_example(model, squared_error, randn(5, 4), randn(5, 3))


def test_a_model_that_mixes_examples_only_in_training_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="interact"):
        per_example(made(lambda: Centred(always=False)).train(), squared_error, randn(5, 4), randn(5, 3))


@pytest.mark.parametrize("loss", [F.mse_loss, lambda o, y: (o - y).square(), lambda o, y: (o - y).sum(1)[:, None]])
def test_a_loss_that_is_not_one_number_an_example_is_refused(loss: Loss) -> None:
    with pytest.raises(ValueError, match="it must be one number an example"):
        per_example(made(lambda: nn.Linear(4, 3)), loss, randn(5, 4), randn(5, 3))


@pytest.mark.parametrize("batch", [5, 0])
@pytest.mark.parametrize("make", [nn.Flatten, lambda: nn.Linear(4, 3).requires_grad_(False)])
def test_a_model_without_trained_parameters_is_refused(make: Callable[[], nn.Module], batch: int) -> None:
    with pytest.raises(ValueError, match="nothing to train"):
        per_example(made(make), squared_error, randn(batch, 4), randn(batch, 4))


# The model is left as it was.


@pytest.mark.parametrize(("make", "x"), [(image_model, randn(4, 2, 8, 8)), (Scaled, randn(4, 4)), (Twice, randn(4, 4)),
                                         (Recurrent, randint(7, 4, 3))])
@pytest.mark.parametrize("training", [True, False])
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


def test_a_refused_loss_leaves_the_model_as_it_was() -> None:
    model = made(lambda: nn.Linear(4, 3)).train()
    with pytest.raises(ValueError, match="one number an example"):
        per_example(model, F.mse_loss, randn(5, 4), randn(5, 3))
    assert all(p.requires_grad for p in model.parameters())
    assert model.training
    assert not model._forward_hooks


# A second opinion.


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize(("make", "x"), [
    (lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), randn(9, 5)),
    (lambda: image_model(inplace=False), randn(7, 2, 8, 8)),
])
def test_opacus_agrees(make: Callable[[], nn.Module], x: Tensor) -> None:
    model = made(make)
    y = randint(3, len(x))
    theirs = GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    F.cross_entropy(theirs(x), y, reduction="sum").backward()
    expected = {n: p.grad_sample for n, p in theirs._module.named_parameters()}
    probe = per_example(model, lambda output, target: F.cross_entropy(output, target, reduction="none"), x, y)
    assert_close(probe.norms, torch.cat([g.flatten(1) for g in expected.values()], 1).norm(dim=1))
    coefficients = randn(len(x))
    for name, value in probe.weighted_sum(coefficients).items():
        assert_close(value, torch.einsum("b,b...->...", coefficients, expected[name]))
