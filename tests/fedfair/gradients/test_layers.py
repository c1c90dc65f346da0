"""Per-example gradients of single layers, of every kind and shape, against one example at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfair.gradients.layer_gradients import Lookups, Materialised, OuterProducts, Turned
from tests.fedfair.gradients.probing import check_recorded, few, made, parts_of, randint, randn, seeds, small
from tests.for_each import for_each


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
    """Draw a Conv2d and an input for it."""
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


@pytest.mark.parametrize("width", [3, 12])  # patches along channels, and along rows of pixels
@pytest.mark.parametrize("o", [8, 40])  # written down, and as products
def test_convolutions_are_the_same_in_any_memory_format(width: int, o: int) -> None:
    layer = made(lambda: nn.Conv2d(2, o, (2, 3), padding=(0, 1)))
    x, model = randn(3, 2, 3, width), nn.Sequential(layer, nn.Tanh())
    sums = []
    for form in (torch.contiguous_format, torch.channels_last):
        probe = check_recorded(model.to(memory_format=form), x.to(memory_format=form))
        assert (type(probe._layers[0]) is Turned) is (width == 3)
        assert parts_of(probe, "0.weight") is (OuterProducts if (o, width) == (40, 3) else Materialised)
        sums.append(probe.weighted_sum(torch.arange(3.0).double()))
    assert all(value.is_contiguous() for value in sums[1].values())
    assert all(torch.allclose(value, sums[1][name], rtol=0, atol=1e-12) for name, value in sums[0].items())


@for_each(("layer", "size", "kind"), [
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


@pytest.mark.parametrize("layer", [lambda: nn.LayerNorm(4, eps=0.5), lambda: nn.GroupNorm(2, 4, eps=0.5)])
def test_norms_have_an_epsilon_of_their_own(layer: Callable[[], nn.Module]) -> None:
    check_recorded(made(lambda: nn.Sequential(layer(), nn.Tanh())), randn(3, 4))


@settings(deadline=None, max_examples=60)
@example(1e6, 5, False, 43438)
@given(st.sampled_from([1.0, 1e2, 1e4, 1e6]), st.integers(2, 5), st.booleans(), seeds)
def test_an_example_whose_positions_cancel_adds_no_more_than_its_clip_norm(size: float, t: int, bias: bool, seed: int
                                                                            ) -> None:
    """In float32, where the pairs of positions are so much larger than what is left of them that only rounding is."""
    deltas = randn(3, t, 10, seed=seed)
    deltas = deltas - deltas.mean(1, keepdim=True)
    inputs = (size * randn(3, 1, 40, seed=seed + 1) + randn(3, t, 40, seed=seed + 2)).float()
    names = {"weight": "weight", "bias": "bias"} if bias else {"weight": "weight"}
    tokens = randint(2, 3, t, seed=seed)
    for layer in (OuterProducts(names, torch.Size((10, 40)), inputs, deltas.float()),
                  Lookups("weight", torch.Size((2, 10)), tokens, (size * deltas).float())):
        coefficients = (1 / layer.squares().values.sqrt()).clamp(max=1)
        for place in range(3):
            alone = torch.zeros(3).index_fill(0, torch.tensor([place]), float(coefficients[place]))
            added = torch.stack([value.double().square().sum() for value in layer.weighted_sum(alone).values()])
            assert float(added.sum().sqrt()) <= 1.001
