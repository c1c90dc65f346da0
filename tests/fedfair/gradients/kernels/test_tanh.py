"""tanh by way of the sigmoid against PyTorch's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedfair.gradients.kernels import Tanh
from fedfair.models.find import build

DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.lists(st.floats(width=32), max_size=30))
def test_it_is_tanh_within_two_units_of_rounding_of_one(dtype: torch.dtype, numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=dtype)
    found = Tanh()(x)
    assert found.dtype == dtype
    expected = torch.tanh(x.double()).to(dtype)
    torch.testing.assert_close(found, expected, rtol=0, atol=2 * torch.finfo(dtype).eps, equal_nan=True)


def test_its_derivatives_are_those_of_tanh() -> None:
    """To the second, by which Hessians are measured, in both modes and a batch at a time."""
    x = torch.linspace(-3, 3, 25, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Tanh(), (x,), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(Tanh(), (x,), check_fwd_over_rev=True, check_batched_grad=True)


def test_functions_of_functions_take_it() -> None:
    """A Hessian by forward over backward mode, for every example of a batch, is that of PyTorch's tanh."""
    x = torch.linspace(-2, 2, 12, dtype=torch.float64).view(4, 3)
    found, expected = (torch.func.vmap(torch.func.hessian(lambda row, f=f: f(row).prod()))(x)
                       for f in (Tanh(), torch.tanh))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_a_batch_may_lie_along_any_dimension() -> None:
    x = torch.linspace(-2, 2, 12, dtype=torch.float64).view(4, 3)
    assert torch.equal(torch.func.vmap(Tanh(), in_dims=1, out_dims=1)(x), Tanh()(x))


@pytest.mark.parametrize(("name", "shape"), [("mlp", (5,)), ("cnn", (1, 6, 6))])
def test_the_models_are_those_with_a_plain_tanh(name: str, shape: tuple[int, ...]) -> None:
    model = build(name, (), shape, 3, 0, torch.float64)
    assert isinstance(model, nn.Sequential)
    plain = nn.Sequential(*(nn.Tanh() if isinstance(layer, Tanh) else layer for layer in model))
    assert sum(isinstance(layer, nn.Tanh) for layer in plain) == 2
    x = torch.randn(4, *shape, dtype=torch.float64)
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=1e-14)
