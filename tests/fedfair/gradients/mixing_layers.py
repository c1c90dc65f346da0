"""Layers and models that mix examples, or might, by a function between two layers, a hook, or something remembered."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, CLASSES = 6, 3
Make = Callable[[], nn.Module]
Function = Callable[[nn.Module, Tensor], Tensor]

CENTRES: list[Tensor] = []
LATEST = torch.zeros(WIDTH, dtype=torch.float64)


class Between(nn.Module):
    """A layer, what a function makes of its output and of the module, and a head."""

    def __init__(self, function: Function, **kept: Any) -> None:
        super().__init__()
        self.first, self.head, self.function = nn.Linear(4, WIDTH), nn.Linear(WIDTH, CLASSES), function
        for name, value in kept.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.function(self, self.first(x)))


def between(function: Function, **kept: Any) -> Make:
    return lambda: Between(function, **kept)


def chain(*layers: Callable[[], nn.Module]) -> Make:
    return lambda: nn.Sequential(nn.Linear(4, WIDTH), *(layer() for layer in layers), nn.Linear(WIDTH, CLASSES))


def standardised(h: Tensor) -> Tensor:
    return (h - h.mean(0)) / (h.std(0, unbiased=False) + 1e-5)


def mixup(model: nn.Module, h: Tensor) -> Tensor:
    share = torch.rand(1, dtype=h.dtype)
    return share * h + (1 - share) * h[torch.randperm(len(h))] if model.training else h


def mixup_by_numpy(model: nn.Module, h: Tensor) -> Tensor:
    return (h + h[torch.from_numpy(np.random.permutation(len(h)))]) / 2 if model.training else h


def mixup_by_python(model: nn.Module, h: Tensor) -> Tensor:
    return (h + h[random.sample(range(len(h)), len(h))]) / 2 if model.training else h


def mix_style(model: nn.Module, h: Tensor) -> Tensor:
    """Give each example the mean and deviation of another (Zhou et al. 2021)."""
    other = torch.randperm(len(h))
    mean, deviation = h.mean(1, keepdim=True), h.std(1, keepdim=True)
    return (h - mean) / deviation * deviation[other] + mean[other] if model.training else h


def running_centre(model: Any, h: Tensor) -> Tensor:
    model.centre.lerp_(h.detach().mean(0), 0.1)
    return h - model.centre


def centre_past_the_version_counter(model: Any, h: Tensor) -> Tensor:
    model.centre.data.lerp_(h.detach().mean(0), 0.1)
    return h


def centre_in_an_attribute(model: Any, h: Tensor) -> Tensor:
    model.memory = h.detach().mean(0)
    return h


def latest_centre(model: Any, h: Tensor) -> Tensor:
    before, model.memory = model.memory, h.detach().mean(0)
    return h if before is None else h - before


def centre_in_a_closure() -> nn.Module:
    centres: list[Tensor] = []

    def remembering(model: nn.Module, h: Tensor) -> Tensor:
        centres.append(h.detach().mean(0))
        return h - torch.stack(centres).mean(0)

    return Between(remembering)


def centre_in_a_variable_of_a_closure() -> nn.Module:
    centre = torch.zeros(WIDTH, dtype=torch.float64)

    def remembering(model: nn.Module, h: Tensor) -> Tensor:
        nonlocal centre
        centre = h.detach().mean(0)
        return h

    return Between(remembering)


def centre_in_a_global(model: nn.Module, h: Tensor) -> Tensor:
    CENTRES.append(h.detach().mean(0))
    return h - torch.stack(CENTRES).mean(0)


def centre_in_a_global_variable(model: nn.Module, h: Tensor) -> Tensor:
    global LATEST
    before, LATEST = LATEST, h.detach().mean(0)
    return h - before


def centre_in_a_default(model: nn.Module, h: Tensor, centres: list[Tensor] = []) -> Tensor:  # noqa: B006
    centres.append(h.detach().mean(0))
    return h - torch.stack(centres).mean(0)


class OfItsClass(Between):
    """Keeps a centre for all models of its class."""

    shared: Tensor | None = None

    def __init__(self) -> None:
        super().__init__(lambda model, h: h)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = self.first(x)
        before, OfItsClass.shared = OfItsClass.shared, h.detach().mean(0)
        return self.head(h if before is None else h - before)


class Notes:
    """An object beside a model."""

    centre = 0.0


def centre_in_an_object(model: Any, h: Tensor) -> Tensor:
    before, model.notes.centre = model.notes.centre, float(h.detach().mean())
    return h - before


def generator_of_centres() -> nn.Module:
    def running() -> Any:
        mean = torch.zeros(WIDTH, dtype=torch.float64)
        while True:
            mean = (mean + (yield mean)) / 2

    keeper = running()
    next(keeper)
    return Between(lambda model, h: h - keeper.send(h.detach().mean(0)))


def largest(model: Any, h: Tensor) -> Tensor:
    model.most.copy_(torch.maximum(model.most, h.detach().abs().max()))
    return h / model.most


def first_batch_scales(model: Any, h: Tensor) -> Tensor:
    """Set a scale by the first batch, as ActNorm does."""
    if model.scale is None:
        model.scale = 1 / (h.detach().std() + 1e-5) if len(h) > 1 else torch.ones(())
    return h * model.scale


def random_by_the_batch(model: nn.Module, h: Tensor) -> Tensor:
    torch.manual_seed(int(h.detach().abs().sum() * 1e6) % 2**31)
    return F.dropout(h, 0.5)


def extreme_switch(model: nn.Module, h: Tensor) -> Tensor:
    return standardised(h) if bool((h.abs() > 100).any()) else h


class Pulling(torch.autograd.Function):
    """The identity, with a rule for vmap that mixes."""

    @staticmethod
    def forward(h: Tensor) -> Tensor:  # noqa: D102
        return h.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: D102
        pass

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # noqa: D102
        return slope

    @staticmethod
    def vmap(info: Any, in_dims: Any, h: Tensor) -> tuple[Tensor, int]:  # noqa: D102
        return h - h.mean(in_dims[0], keepdim=True), in_dims[0]


def zero_gate() -> nn.Module:
    class Gate(Between):
        def __init__(self) -> None:
            super().__init__(lambda model, h: h)
            self.gate = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return self.head(h + self.gate * standardised(h))

    return Gate()


def with_hook(register: str, hook: Callable[..., Any]) -> Make:
    def make() -> nn.Module:
        model = chain(nn.Tanh)()
        getattr(model[1], register)(hook)
        return model

    return make


def replaced(name: str, function: Callable[..., Any]) -> Make:
    def make() -> nn.Module:
        model = chain(nn.Tanh)()
        setattr(model[0], name, lambda x: function(F.linear(x, model[0].weight, model[0].bias)))
        return model

    return make


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, weight: Tensor) -> Tensor:  # noqa: D102
        return 2 * weight


def parametrised(register: Callable[[nn.Module], Any]) -> Make:
    def make() -> nn.Module:
        model = chain(nn.Tanh)()
        register(model[0])
        return model

    return make


class Subclass(nn.Tanh):
    """Not what it inherits from."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return standardised(x)


class Sequence(nn.Module):
    """A layer over sequences `[B, T, p]` that gives sequences, and a head on their mean."""

    def __init__(self, layer: nn.Module, words: bool = False) -> None:
        super().__init__()
        self.up = nn.Embedding(7, WIDTH) if words else nn.Linear(1, WIDTH)
        self.layer, self.head = layer, nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = self.up(x if isinstance(self.up, nn.Embedding) else x.unsqueeze(-1))
        h = self.layer(h, h, h) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(h)
        return self.head((h[0] if isinstance(h, tuple) else h).mean(1))


def sequence(layer: Callable[[], nn.Module], words: bool = False) -> Make:
    return lambda: Sequence(layer(), words)


class TiedWords(nn.Module):
    """Embeds and predicts with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(7, WIDTH), nn.Linear(WIDTH, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.words(x).mean(1))
