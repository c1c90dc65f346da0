"""The optimisers step as PyTorch's own do, and remember what those do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedfair.models.optimizers import Optimizer, Sgd, make_adam, make_optimizer, make_rmsprop

SHAPES = ((3, 2), (4,), ())


def parameters() -> list[nn.Parameter]:
    draws = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=draws)) for shape in SHAPES]


def steps(optimizer: Optimizer, on: list[nn.Parameter], which: range) -> None:
    for number in which:
        draws = torch.Generator().manual_seed(number)
        for parameter in on:
            parameter.grad = torch.randn(parameter.shape, generator=draws)
        optimizer.step()


Make = Callable[[list[nn.Parameter]], Optimizer]


def pairs(learning_rate: float, momentum: float, weight_decay: float) -> list[tuple[Make, Make]]:
    settings: dict[str, Any] = {"lr": learning_rate, "weight_decay": weight_decay}
    return [(lambda on: Sgd(on, learning_rate, momentum, weight_decay),
             lambda on: torch.optim.SGD(on, momentum=momentum, **settings)),
            (lambda on: make_adam(on, learning_rate, weight_decay), lambda on: torch.optim.Adam(on, **settings)),
            (lambda on: make_rmsprop(on, learning_rate, weight_decay), lambda on: torch.optim.RMSprop(on, **settings))]


rates = st.floats(0, 1)


@given(learning_rate=rates, momentum=rates, weight_decay=rates, before=st.integers(0, 3))
def test_every_step_is_pytorchs_also_after_loading_what_either_remembers(
        learning_rate: float, momentum: float, weight_decay: float, before: int) -> None:
    for ours, theirs in pairs(learning_rate, momentum, weight_decay):
        expected = parameters()
        steps(theirs(expected), expected, range(5))
        for make in (ours, theirs):
            found = parameters()
            steps(earlier := make(found), found, range(before))
            start = [p.detach().clone() for p in found]
            for _ in range(2):  # the second time shows that the first left what was remembered alone
                now = [nn.Parameter(value.clone()) for value in start]
                later = ours(now)
                later.load_state_dict(earlier.state_dict())
                steps(later, now, range(before, 5))
                assert all(torch.equal(a, b) for a, b in zip(now, expected, strict=True))


def test_a_parameter_without_a_gradient_is_refused() -> None:
    on = parameters()
    with pytest.raises(ValueError, match=r"set `\.grad` of every parameter"):
        make_optimizer("sgd", {str(number): p for number, p in enumerate(on)}, 0.1, 0.0, 0.0).step()
