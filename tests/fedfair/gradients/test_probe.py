"""The probe against one example at a time through autograd, for whole models."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn
from torch.nn import functional as F

from fedfair.gradients.probe import per_example
from tests.fedfair.gradients.probing import (
    assert_close,
    check,
    check_recorded,
    few,
    image_model,
    made,
    randint,
    randn,
    seeds,
    small,
    text_model,
)
from tests.for_each import for_each


@few
@given(small, seeds)
def test_embedding_then_layer_norm_then_linear(batch: int, seed: int) -> None:
    check_recorded(made(text_model, seed), randint(7, batch, 3, seed=seed), seed)


@few
@given(small, seeds)
def test_convolutions_with_group_norm_pooling_and_linear(batch: int, seed: int) -> None:
    check_recorded(made(image_model, seed), randn(batch, 2, 8, 8, seed=seed), seed)


@for_each("after", [nn.ReLU, nn.ELU, nn.LeakyReLU, nn.Hardtanh])
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
    probe = check(made(Residual), randn(5, 4))
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

    check(made(Keyword), randn(5, 4))


# A second opinion.


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize(("make", "x"), [
    (lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), randn(9, 5)),
    (lambda: image_model(inplace=False), randn(7, 2, 8, 8)),
])
def test_opacus_agrees(make: Callable[[], nn.Module], x: Tensor) -> None:
    import opacus

    model = made(make)
    y = randint(3, len(x))
    theirs = opacus.GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    F.cross_entropy(theirs(x), y, reduction="sum").backward()
    expected = {n: p.grad_sample for n, p in theirs._module.named_parameters()}
    probe = per_example(model, lambda output, target: F.cross_entropy(output, target, reduction="none"), x, y)
    assert_close(probe.norms, torch.cat([g.flatten(1) for g in expected.values()], 1).norm(dim=1))
    coefficients = randn(len(x))
    for name, value in probe.weighted_sum(coefficients).items():
        assert_close(value, torch.einsum("b,b...->...", coefficients, expected[name]))
