"""Going through a chain by hand against autograd, and the models that are left to autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfair.gradients import probe as gradients
from fedfair.gradients.kernels import Tanh
from fedfair.gradients.known_layers import is_known
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.gradients.passes import UnreadableError, by_autograd, by_hand
from fedfair.gradients.probe import per_example
from fedfair.models.find import build
from fedfair.models.published import loss
from tests.fedfair.gradients.probing import assert_close, check, few, made, randint, randn, seeds, small, squared_error
from tests.for_each import for_each

WIDTH = 3
LINKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH), "no bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "tanh": nn.Tanh, "own tanh": Tanh, "sigmoid": nn.Sigmoid, "relu": nn.ReLU,
    "flatten": lambda: nn.Flatten(start_dim=2),
    "in place": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True))}


@few
@given(st.lists(st.sampled_from(list(LINKS)), max_size=6), small, small, st.sets(st.integers(0, 6)), seeds)
def test_chains_of_known_layers_are_gone_through_by_hand(names: list[str], batch: int, positions: int,
                                                         frozen: set[int], seed: int) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(2, WIDTH), *(LINKS[name]() for name in names), nn.Flatten(),
                                       nn.Linear(WIDTH * positions, 2)), seed)
    parameters = list(model.parameters())
    for number in frozen & set(range(len(parameters) - 1)):
        parameters[number].requires_grad_(False)
    check(model, randn(batch + 1, positions, 2, seed=seed), seed=seed)
    assert gradients._paths[model] is gradients.chained


@st.composite
def convolutions(draw: st.DrawFn) -> nn.Sequential:
    """Draw a convolution of any kind that pads by a number of zeros, between two others."""
    pair = lambda low, high: draw(st.tuples(st.integers(low, high), st.integers(low, high)))  # noqa: E731
    groups = draw(st.sampled_from([1, 2]))
    middle = nn.Conv2d(2, 2 * groups, pair(1, 3), pair(1, 3), pair(0, 2), pair(1, 2), groups, draw(st.booleans()))
    return nn.Sequential(nn.Conv2d(1, 2, 2), Tanh(), middle, nn.ReLU(), nn.Conv2d(2 * groups, 3, 1), nn.Flatten())


@few
@given(convolutions(), small, st.tuples(st.integers(6, 9), st.integers(6, 9)), seeds)
def test_chains_of_convolutions_are_gone_through_by_hand(model: nn.Sequential, batch: int, size: tuple[int, int],
                                                         seed: int) -> None:
    model = model.double()
    check(model, randn(batch + 1, 1, *size, seed=seed), seed=seed)
    assert gradients._paths[model] is gradients.chained


@pytest.mark.parametrize("padding", [{"padding": "same"}, {"padding": 1, "padding_mode": "circular"}])
def test_convolutions_that_pad_otherwise_are_left_to_autograd(padding: dict[str, Any]) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3, **padding), nn.Flatten()).double()
    check(model, randn(4, 1, 6, 6))
    assert gradients._paths[model] is gradients.recorded


def test_by_hand_and_by_autograd_every_layer_gets_the_same() -> None:
    model = nn.Sequential(*(LINKS[name]() for name in ("tanh", "linear", "relu", "no bias", "sigmoid"))).double()
    _, owned = trained_parameters(model)
    losses, calls = by_hand(model, randn(4, WIDTH), lambda output: output.square().sum(1), owned)
    expected, others = by_autograd(model, randn(4, WIDTH), lambda output: output.square().sum(1), owned)
    assert_close(losses, expected)
    assert [call.layer for call in reversed(calls)] == [call.layer for call in others] == [model[1], model[3]]
    for call, other in zip(reversed(calls), others, strict=True):
        assert_close(call.inputs, other.inputs)
        assert_close(call.output_gradients, other.output_gradients)


@pytest.mark.parametrize(("name", "shape"), [("logistic", (5,)), ("squashed_logistic", (5,)), ("mlp", (5,)),
                                             ("cnn", (1, 7, 6))])
def test_published_models_are_gone_through_by_hand(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, (), shape, 3, 0, torch.float64)
    check(model, randn(6, *shape), randint(3, 6), loss)
    assert gradients._paths[model] is gradients.chained


@for_each(("first", "x", "width"), [
    (lambda: nn.Embedding(7, 2, padding_idx=0), randint(7, 6, 3), 6),
    (lambda: nn.Conv2d(1, 2, 3), randn(6, 1, 4, 4), 8), (lambda: nn.LayerNorm(4), randn(6, 3, 4), 12),
    (lambda: nn.GroupNorm(1, 2), randn(6, 2, 3), 6)])
@for_each("spare", [False, True])
def test_the_first_layer_may_be_any_that_is_known(first: Callable[[], nn.Module], x: Tensor, width: int, spare: bool
                                                  ) -> None:
    """Also beside a layer that is never called, which nobody waits for."""
    model = nn.Sequential(first(), nn.Flatten(), nn.Tanh(), nn.Linear(width, 2)).double()
    if spare:
        model[0].register_module("spare", nn.Linear(2, 2).double())
    check(model, x)
    assert gradients._paths[model] is gradients.chained
    model[0].requires_grad_(False)
    check(model, x)


def test_the_next_word_is_gone_through_by_hand() -> None:
    model = build("next_word", (4, 5), (3,), 6, 0, torch.float64)
    check(model, randint(8, 6, 3), randint(6, 6), loss)
    assert gradients._paths[model] is gradients.chained


@for_each("kind", ["forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook"])
def test_no_layer_is_known_while_a_hook_on_all_modules_may_change_it(kind: str) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    handle = getattr(nn.modules.module, f"register_module_{kind}")(lambda *_: None)
    try:
        assert not is_known(model)
    finally:
        handle.remove()
    assert is_known(model)


class Square(nn.Tanh):
    """Not what it inherits from."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.square()


def doubled(module: nn.Module, args: object, output: Tensor) -> Tensor:
    return 2 * output


def hooked(model: nn.Sequential, where: int | None) -> None:
    (model if where is None else model[where]).register_forward_hook(doubled)


def overridden(model: nn.Sequential, where: int | None) -> None:
    changed = model if where is None else model[where]
    forward = changed.forward
    changed.forward = lambda x: 3 * forward(x)


@for_each("where", [None, 0, 1])
@for_each("change", [hooked, overridden])
def test_a_chain_that_is_changed_after_its_first_batch_is_left_to_autograd(
        change: Callable[[nn.Sequential, int | None], None], where: int | None) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    check(model, randn(5, 4))
    assert gradients._paths[model] is gradients.chained
    change(model, where)
    check(model, randn(5, 4))
    assert gradients._paths[model] is not gradients.chained


class Squared(nn.Sequential):
    """Not what it inherits from either."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.square(super().forward(x))


@for_each("model", [
    *(nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 2)) for layer in (Square(), nn.GELU(), nn.LayerNorm(4))),
    nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)), nn.Sequential(Squared(nn.Linear(4, 4)), nn.Linear(4, 2)),
    Squared(nn.Linear(4, 2))])
def test_other_models_are_left_to_autograd(model: nn.Module) -> None:
    _, owned = trained_parameters(model.double())
    with pytest.raises(UnreadableError):
        by_hand(model, randn(5, 4), lambda output: output.sum(1), owned)


def test_a_chain_that_folds_positions_into_the_batch_is_refused() -> None:
    model = made(lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten(0, 1)))
    with pytest.raises(ValueError, match="its examples interact"):
        per_example(model, squared_error, randn(5, 2, 4), randn(10, 3))


def test_hooks_take_a_chain_off_the_fast_paths_and_keep_nothing() -> None:
    """A hook may change what passes, and what it keeps of one record may reach another."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    per_example(model, squared_error, randn(5, 4), randn(5, 2))
    seen: list[torch.Size] = []
    model[1].register_full_backward_hook(lambda module, inputs, outputs: seen.append(torch.stack([*outputs]).shape[1:]))
    per_example(model, squared_error, randn(5, 4), randn(5, 2))
    check(model, randn(6, 4))
    assert gradients._paths[model] is gradients.one_at_a_time
    seen.clear()
    per_example(model, squared_error, randn(6, 4), randn(6, 2))
    assert not seen
