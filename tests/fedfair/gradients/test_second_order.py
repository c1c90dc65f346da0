"""Differentiable per-example gradients, and their own gradients, against autograd one example at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedfair.gradients.passes import differentiable
from fedfair.gradients.probe import per_example
from fedfair.models.published import loss

MODELS: dict[str, Callable[[], nn.Module]] = {
    "logistic": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 2)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3)),
    "cnn": lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.GroupNorm(3, 3), nn.MaxPool2d(2),
                                 nn.Conv2d(3, 8, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3, bias=False)),
}
BATCH = 4


def made(name: str) -> tuple[nn.Module, Tensor, Tensor, dict[str, Tensor]]:
    """Draw a model, a batch, and a direction."""
    torch.manual_seed(0)
    model = MODELS[name]().double()
    x = torch.randn(BATCH, 1, 6, 6, dtype=torch.float64)
    direction = {key: torch.randn_like(p) for key, p in model.named_parameters()}
    return model, x, torch.tensor([0, 1, 1, 0]), direction


def slow(model: nn.Module, x: Tensor, y: Tensor, direction: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Squared norms and inner products, `[B]` each, with their graphs."""
    squares, dots = [], []
    for x_i, y_i in zip(x, y, strict=True):
        parts = torch.autograd.grad(loss(model(x_i[None]), y_i[None])[0], list(model.parameters()), create_graph=True)
        squares.append(torch.stack([part.square().sum() for part in parts]).sum())
        dots.append(torch.stack([(g * v).sum() for g, v in zip(parts, direction.values(), strict=True)]).sum())
    return torch.stack(squares), torch.stack(dots)


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_probe(name: str) -> None:
    model, x, y, direction = made(name)
    found, probe = differentiable(model, loss, x, y), per_example(model, loss, x, y)
    assert torch.equal(found.output, model(x))
    assert torch.allclose(found.square_norms(), probe.norms.square(), rtol=1e-12)
    assert torch.allclose(found.dot(direction), probe.dot(direction), rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_their_gradients_are_autograds_one_example_at_a_time(name: str) -> None:
    model, x, y, direction = made(name)
    found = differentiable(model, loss, x, y)
    coefficients = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    for fast, plain in zip((found.square_norms(), found.dot(direction)), slow(model, x, y, direction), strict=True):
        got = torch.autograd.grad((coefficients * fast).sum(), list(model.parameters()), retain_graph=True)
        expected = torch.autograd.grad((coefficients * plain).sum(), list(model.parameters()), retain_graph=True)
        for a, b in zip(got, expected, strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-11)
        assert any(bool(part.any()) for part in expected)


def test_a_hessian_vector_product_needs_no_hessian() -> None:
    """For logistic regression the Hessian can be written down: H v, from <g, v>."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 2, bias=False)).double()
    x, y = torch.randn(1, 3, dtype=torch.float64), torch.tensor([1])
    direction = torch.randn(2, 3, dtype=torch.float64)
    p = model(x).softmax(1)[0]
    expected = torch.outer((torch.diag(p) - torch.outer(p, p)) @ direction @ x[0], x[0])
    value = differentiable(model, loss, x, y).dot({"0.weight": direction}).sum()
    assert torch.allclose(torch.autograd.grad(value, model[0].weight)[0], expected, rtol=1e-12)


def tied() -> nn.Module:
    """Two layers with one weight."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second)


@pytest.mark.parametrize("model", [nn.Sequential(nn.PReLU()), nn.Sequential(*[nn.Linear(4, 4)] * 2), tied()])
def test_unknown_and_repeated_layers_are_refused(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="cannot be differentiated here, or uses one twice"):
        differentiable(model, loss, torch.randn(2, 4), torch.tensor([0, 1]))
