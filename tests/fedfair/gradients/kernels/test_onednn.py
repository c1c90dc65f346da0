"""Products by oneDNN are the products, and where they cannot be had torch's own are taken."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from fedfair.gradients import kernels as products
from fedfair.gradients.kernels import FastLinear, product, sum_of_outer_products

WIDTHS = st.sampled_from([1, 2, 8, 10, 100, 256])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return the rows that oneDNN is given: none where a processor has no AVX-512."""
    found: list[Tensor] = []
    multiply = products._multiply

    def recorded(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Keep the rows."""
        found.append(rows)
        return multiply(rows, weight, bias)

    monkeypatch.setattr(products, "_multiply", recorded)
    return found


def close(found: Tensor, exact: Tensor, terms: int) -> bool:
    """Whether single precision explains the difference from sums of so many products of numbers of size 1."""
    return torch.allclose(found.double(), exact, rtol=0, atol=1e-6 * terms)


@settings(max_examples=60)
@given(st.integers(0, 700), WIDTHS, WIDTHS, st.booleans(), st.integers(0, 2**31))
def test_they_are_those_of_double_precision(rows: int, width: int, outputs: int, with_bias: bool, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    a, weight, bias, d = (torch.randn(shape, generator=draws).clamp(-3, 3) for shape in (
        (rows, width), (outputs, width), (outputs,), (rows, outputs)))
    given_bias = bias if with_bias else None
    exact = F.linear(a.double(), weight.double(), None if given_bias is None else bias.double())
    assert close(product(a, weight, given_bias), exact, width)
    assert close(product(d, weight.t()), d.double() @ weight.double(), outputs)
    summed = sum_of_outer_products(d, a)
    assert close(summed, d.double().t() @ a.double(), max(rows, 1))
    assert summed.is_contiguous()


@pytest.mark.parametrize("rows", [1024, 1000])
def test_a_chain_has_the_gradients_of_torch(rows: int, calls: list[Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 256), nn.Tanh(), nn.Linear(256, 256, bias=False), nn.Tanh(), nn.Linear(256, 2))
    x = torch.randn(rows, 100, requires_grad=True)
    variables = [x, *model.parameters()]
    expected = torch.autograd.grad(model(x).square().sum(), variables)
    assert not calls
    with FastLinear():
        output = model(x)
    found = torch.autograd.grad(output.square().sum(), variables)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm()) <= 1e-5 * float(theirs.norm())
    assert len(calls) == (2 + 2 + 2 if products._AVAILABLE else 0)  # forward, rows, weights; not of the last layer


def test_what_onednn_cannot_or_need_not_do_is_left_to_torch(calls: list[Tensor]) -> None:
    large, weight = torch.randn(1024, 256), torch.randn(256, 256)
    for rows, other in ((large.double(), weight.double()), (large[:4], weight), (large, weight[:2]),
                        (large.reshape(4, 256, 256), weight)):
        assert torch.equal(product(rows, other), F.linear(rows, other))
    assert not calls


@pytest.mark.parametrize("trained", ["weight", "bias"])
def test_a_parameter_that_is_trained_alone_has_its_gradient(trained: str) -> None:
    layer, x = nn.Linear(256, 256), torch.randn(1000, 256)
    parameter = layer.requires_grad_(False).get_parameter(trained).requires_grad_()
    with FastLinear():
        (found,) = torch.autograd.grad(layer(x).sum(), parameter)
    (expected,) = torch.autograd.grad(layer(x).sum(), parameter)
    assert torch.allclose(found, expected, atol=1e-3)


def test_the_next_layer_may_overwrite_them() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(inplace=True))
    x = torch.randn(1000, 256)
    with FastLinear():
        found = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm()) <= 1e-5 * float(theirs.norm())


def test_hessians_are_those_of_torch() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2))
    x, parameters = torch.randn(300, 100), list(model.parameters())
    directions = [torch.randn_like(parameter) for parameter in parameters]

    def hessian_product() -> list[Tensor]:
        """Multiply the Hessian of a loss by the directions."""
        slopes = torch.autograd.grad(model(x).square().sum(), parameters, create_graph=True)
        along = torch.stack([(slope * v).sum() for slope, v in zip(slopes, directions, strict=True)]).sum()
        return list(torch.autograd.grad(along, parameters))

    expected = hessian_product()
    with FastLinear():
        found = hessian_product()
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).norm()) <= 1e-4 * float(theirs.norm())
