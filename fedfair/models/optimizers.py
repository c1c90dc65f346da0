"""SGD, Adam and RMSprop by PyTorch's own update rules, in a process that starts without PyTorch's compiler.

The classes of `torch.optim` import `torch._dynamo` when the first optimiser is made. That takes three seconds on two
cores, a third of the time of a small run. The functions behind the classes do not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

OptimizerName = Literal["sgd", "adam", "rmsprop"]


class Optimizer(Protocol):
    """The interface of an optimiser, which those of `torch.optim` have too."""

    param_groups: list[dict[str, Any]]
    """Settings ("lr", "momentum", ...), the same for all parameters here."""

    def step(self) -> object:
        """Change the parameters by their `.grad`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as tensors and plain values."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of another optimiser, as a copy."""


class Sgd:
    """`torch.optim.SGD` for parameters that all have a gradient; it can load the `state_dict` of PyTorch's class."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float, momentum: float = 0.0,
                 weight_decay: float = 0.0) -> None:
        self._parameters: list[Tensor] = list(parameters)
        self.param_groups: list[dict[str, Any]] = [
            {"lr": learning_rate, "momentum": momentum, "weight_decay": weight_decay}]
        self._buffers: list[Tensor | None] = [None] * len(self._parameters)

    @torch.no_grad()
    def step(self) -> None:
        """See `Optimizer`; raises `ValueError` if a parameter has no gradient."""
        settings = self.param_groups[0]
        sgd(self._parameters, _gradients(self._parameters), self._buffers, lr=settings["lr"],
            momentum=settings["momentum"], weight_decay=settings["weight_decay"], dampening=0.0, nesterov=False,
            maximize=False)

    def state_dict(self) -> dict[str, Any]:
        """See `Optimizer`."""
        return {"state": {number: {"momentum_buffer": buffer} for number, buffer in enumerate(self._buffers)}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See `Optimizer`."""
        saved = [state_dict["state"].get(number, {}).get("momentum_buffer") for number in range(len(self._parameters))]
        self._buffers = [None if buffer is None else buffer.clone() for buffer in saved]


State = dict[str, list[Tensor]]
"""By name of an average, a tensor for each parameter."""

Update = Callable[[list[Tensor], list[Tensor], State, dict[str, Any]], None]
"""`update(parameters, gradients, state, settings)` changes the parameters and the state."""


class Averaging:
    """An optimiser of PyTorch's that keeps averages of each parameter's gradients and counts its steps.

    It can load the `state_dict` of PyTorch's class; all parameters must have a gradient. `update` is the update rule,
    `averages` are the names of the averages, and `settings` go by the names that `torch.optim` gives them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], update: Update, averages: Iterable[str],
                 settings: dict[str, Any]) -> None:
        self._parameters: list[Tensor] = list(parameters)
        self._update, self.param_groups = update, [settings]
        self._state: State = {"step": [torch.zeros(()) for _ in self._parameters]} | {
            name: [torch.zeros_like(parameter, requires_grad=False) for parameter in self._parameters]
            for name in averages}

    @torch.no_grad()
    def step(self) -> None:
        """See `Optimizer`; raises `ValueError` if a parameter has no gradient."""
        self._update(self._parameters, _gradients(self._parameters), self._state, self.param_groups[0])

    def state_dict(self) -> dict[str, Any]:
        """See `Optimizer`."""
        return {"state": {number: {name: values[number] for name, values in self._state.items()}
                          for number in range(len(self._parameters))}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See `Optimizer`."""
        saved = state_dict["state"]
        if saved:  # a class of `torch.optim` has no state before its first step
            self._state = {name: [saved[number][name].clone() for number in range(len(self._parameters))]
                           for name in self._state}


def make_adam(parameters: Iterable[nn.Parameter], learning_rate: float, weight_decay: float = 0.0) -> Averaging:
    """Make `torch.optim.Adam`."""
    return Averaging(parameters, _adam_step, ("exp_avg", "exp_avg_sq"), {
        "lr": learning_rate, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": weight_decay})


def make_rmsprop(parameters: Iterable[nn.Parameter], learning_rate: float, weight_decay: float = 0.0) -> Averaging:
    """Make `torch.optim.RMSprop` without momentum.

    Its average of squares starts at 0 and is not corrected for that: the first step is ten times the learning rate
    along every coordinate.
    """
    return Averaging(parameters, _rmsprop_step, ("square_avg",), {
        "lr": learning_rate, "alpha": 0.99, "eps": 1e-8, "weight_decay": weight_decay})


def make_optimizer(name: OptimizerName, parameters: Mapping[str, nn.Parameter], learning_rate: float,
                   weight_decay: float, momentum: float) -> Optimizer:
    """Make the optimiser called `name` for named parameters; only SGD has `momentum`."""
    if name == "adam":
        return make_adam(parameters.values(), learning_rate, weight_decay)
    if name == "rmsprop":
        return make_rmsprop(parameters.values(), learning_rate, weight_decay)
    return Sgd(parameters.values(), learning_rate, momentum, weight_decay)


def _gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradient of each parameter; raise `ValueError` if one has none."""
    gradients = [parameter.grad for parameter in parameters]
    if any(gradient is None for gradient in gradients):
        raise ValueError("a parameter has no gradient: set `.grad` of every parameter before a step")
    return [gradient for gradient in gradients if gradient is not None]


def _adam_step(parameters: list[Tensor], gradients: list[Tensor], state: State, settings: dict[str, Any]) -> None:
    """See `Update`."""
    adam(parameters, gradients, state["exp_avg"], state["exp_avg_sq"], [], state["step"], lr=settings["lr"],
         beta1=settings["betas"][0], beta2=settings["betas"][1], eps=settings["eps"],
         weight_decay=settings["weight_decay"], amsgrad=False, maximize=False)


def _rmsprop_step(parameters: list[Tensor], gradients: list[Tensor], state: State, settings: dict[str, Any]) -> None:
    """See `Update`."""
    rmsprop(parameters, gradients, state["square_avg"], [], [], state["step"], lr=settings["lr"],
            alpha=settings["alpha"], eps=settings["eps"], weight_decay=settings["weight_decay"], momentum=0.0,
            centered=False)
