"""The weights of a run at the server, and the optimiser that updates them.

An exponential moving average of a run's weights: post-processing, which costs no privacy. De et al. 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from fedfair.models.optimizers import Optimizer
from strategies.server.training import Training


class Descent:
    """The weights that a round starts from, and an optimiser that is kept while the settings stay the same.

    `make` makes an optimiser of parameters, by the strategy's current settings.
    """

    def __init__(self, make: Callable[[dict[str, nn.Parameter]], Optimizer]) -> None:
        self._make = make
        self._parameters: dict[str, nn.Parameter] = {}
        self._optimizer: Optimizer | None = None
        self._settings: Training | None = None

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights by name: live tensors, which the next step changes."""
        return {name: parameter.data for name, parameter in self._parameters.items()}

    def hold(self, weights: Mapping[str, Tensor], settings: Training) -> None:
        """Take weights; if the settings changed, also make a new optimiser."""
        if settings != self._settings:
            self._parameters = {name: nn.Parameter(value.clone()) for name, value in weights.items()}
            self._optimizer, self._settings = self._make(self._parameters), settings
        else:
            for name, parameter in self._parameters.items():
                parameter.data.copy_(weights[name])

    def become(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the weights by those that clients have trained, and keep the optimiser."""
        for name, parameter in self._parameters.items():
            parameter.data = weights[name]

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """Take one step of the optimiser along these gradients."""
        assert self._optimizer is not None
        for name, parameter in self._parameters.items():
            parameter.grad = gradients[name]
        self._optimizer.step()

    def state(self) -> dict[str, Any]:
        """Return weights, settings and the optimiser's state, as plain values and tensors, once weights are held."""
        assert self._optimizer is not None
        assert self._settings is not None
        return {"weights": self.weights, "training": self._settings.model_dump(mode="json"),
                "optimizer": self._optimizer.state_dict()}

    def restore(self, saved: Mapping[str, Any], settings: Training) -> None:
        """Continue from a saved `state`, with its settings."""
        self.hold(saved["weights"], settings)
        assert self._optimizer is not None
        self._optimizer.load_state_dict(saved["optimizer"])


class WeightAverage:
    """The average of the weights after each round, the latest of which count most.

    With t the number of rounds so far, `average <- d average + (1 - d) weights` for d = min(decay, (1 + t) / (10 + t)),
    which is small at first, so that early weights are soon forgotten. The first average is the first weights.

    Args:
        decay: Largest d, from 0 to below 1; 0 for the latest weights alone.

    Attributes:
        weights: The average by name; empty before the first round.
        rounds: Number of rounds so far.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {}
        self.rounds = 0

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Add the weights after a round, which may be changed in place later."""
        self.rounds += 1
        if self.rounds == 1 or not self.decay:
            self.weights = {name: value.clone() for name, value in weights.items()}
            return
        kept = min(self.decay, (1 + self.rounds) / (10 + self.rounds))
        self.weights = {name: kept * self.weights[name] + (1 - kept) * value for name, value in weights.items()}
