"""One training step on a fixed batch: plain, private here, and private with Opacus."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat, sensitivity
from fedfair.mechanisms.noise import add_gaussian
from fedfair.mechanisms.randomness import generator
from fedfair.models.published import loss

Step = Callable[[], object]
StepMaker = Callable[[nn.Module, Tensor, Tensor], Step]
"""Makes a repeatable step from a model, which is copied, and a batch `x`, `y`."""

RATE, CLIP_NORM, NOISE = 0.01, 0.5, 1.0
"""Learning rate, clip norm, and noise multiplier of every step."""


def plain(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a step without privacy: forward, mean cross entropy, backward, SGD."""
    model = deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        """Take one step of SGD."""
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def probe(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a step of the probe alone: forward, backward, and the norm of each example's gradient."""
    model = deepcopy(model)
    return lambda: per_example(model, loss, x, y)


def private(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a private step: probe, flat clipping, noise from a fresh generator, division, SGD."""
    model = deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    rule, groups, taken = Flat(CLIP_NORM), torch.zeros_like(y), iter(range(2**32))
    deviation = NOISE * sensitivity(rule, 1)

    def step() -> None:
        """Take one private step."""
        probe = per_example(model, loss, x, y)
        sums = probe.weighted_sum(rule.coefficients(probe.norms, groups))
        sums = add_gaussian(sums, deviation, generator(0, "noise", 0, next(taken)))
        for name, parameter in model.named_parameters():
            parameter.grad = sums[name] / len(x)
        optimizer.step()

    return step


def opacus_hooks(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a step of Opacus by its default: hooks materialise every example's gradient."""
    return _opacus(model, x, y, "hooks")


def opacus_ghost(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Make a step of Opacus with ghost clipping: norms first, then a second backward pass over the weighted loss."""
    return _opacus(model, x, y, "ghost")


def _opacus(model: nn.Module, x: Tensor, y: Tensor, mode: Literal["hooks", "ghost"]) -> Step:
    """Make a step of Opacus on this batch; raises `ValueError` if Opacus is not installed."""
    try:
        from opacus import PrivacyEngine
    except ImportError:
        raise ValueError("this benchmark compares with Opacus, which is not installed: pip install opacus") from None
    copy, criterion = deepcopy(model), nn.CrossEntropyLoss()
    made = PrivacyEngine().make_private(
        module=copy, optimizer=torch.optim.SGD(copy.parameters(), lr=RATE), criterion=criterion,
        data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)), noise_multiplier=NOISE,
        max_grad_norm=CLIP_NORM, poisson_sampling=False, grad_sample_mode=mode)
    # With ghost clipping the criterion comes back wrapped, as the third of four.
    wrapped, optimizer, criterion = made[0], made[1], made[2] if mode == "ghost" else criterion

    def step() -> None:
        """Take one private step of Opacus."""
        optimizer.zero_grad()
        criterion(wrapped(x), y).backward()
        optimizer.step()

    return step
