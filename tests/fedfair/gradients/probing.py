"""The oracle of the probe, one example at a time through autograd, and models to try it on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfair.gradients import probe as gradients
from fedfair.gradients.layer_probe import LayerProbe, Loss, Probe
from fedfair.gradients.probe import per_example

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
    flat = torch.cat([g.reshape(len(g), -1) for g in expected.values()], 1)
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
    """Like `check`, and a fast path did it: a broken layer would otherwise hide behind the slower ones.

    What is gone through by hand is checked with autograd too.
    """
    probe = check(model, x, seed=seed)
    path = gradients._paths.get(model)
    assert path in (None, gradients.chained, gradients.recorded)
    if path is not gradients.recorded:
        gradients._paths[model] = gradients.recorded
        check(model, x, seed=seed)
    return probe


def parts_of(probe: Probe, name: str) -> type:
    """In which form the probe keeps the gradients of one parameter."""
    assert isinstance(probe, LayerProbe)
    (kind,) = [type(part) for part in (getattr(part, "turned", part) for part in probe._layers)
               if name in [getattr(part, own, None) for own in ("name", "weight", "bias")]
               or name in getattr(part, "gradients", {})]
    return kind


def made(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Make a float64 model with parameters from a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().double()


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)


def randint(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed + 1))


def text_model() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 6, padding_idx=0), nn.LayerNorm(6), nn.Flatten(), nn.Linear(18, 4))


def image_model(inplace: bool = True) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Tanh(), nn.MaxPool2d(2),
                         nn.Conv2d(4, 6, 3), nn.ReLU(inplace), nn.Flatten(), nn.Linear(24, 3))
