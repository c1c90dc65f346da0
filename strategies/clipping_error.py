"""Training with one of clipping's two errors alone, without noise. Esipova et al. 2023, section 4 and Table 1."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.clipping import ClipRule, Flat, Unclipped
from fedfair.mechanisms.noise import Trust
from fedfair.node.exchanges import send_gradient_sum
from strategies.server.calibration import NoisePlan
from strategies.server.method import Ask
from strategies.server.releases.risk_meter import other_steps
from strategies.server.strategy import Strategy


class ClippingError(Strategy):
    """Steps along a mixture of the batch gradient g and its clipped version gbar, without noise or guarantee.

    The server asks for both sums over the same batch, so it must be trusted with them. It takes single steps.
    """

    modes = ("step",)
    needs = "trust central; no guarantee, since no noise is added"
    _plain: Gradients

    def prepare(self) -> None:
        """Raise `ValueError` if the server may not see both sums, or the optimiser undoes a change of length.

        Risk terms are refused too: they describe a step along gbar.
        """
        if self.training.trust is not Trust.CENTRAL:
            raise ValueError("this strategy compares a batch's gradient with its clipped version at the server, but "
                             f"trust is {self.training.trust.value!r}: take 'central'")
        if self.training.optimizer != "sgd":
            raise ValueError("this strategy makes steps of a wrong length or direction, which "
                             f"{self.training.optimizer!r} would scale anew: take the optimizer 'sgd'")
        if self.training.risk_every is not None:
            raise other_steps()

    def rule(self) -> ClipRule:
        """Return one clip norm for all, as in DP-SGD."""
        return Flat(self.training.clip_norm)

    def noise_plan(self) -> NoisePlan:
        """Return zeros: no noise is added."""
        return NoisePlan((0.0,) * len(self.schedules()))

    @abstractmethod
    def mixture(self, plain: Gradients, clipped: Gradients, ratio: float) -> Gradients:
        """Return the step from g and gbar, where `ratio` is `|gbar| / |g|`."""

    def ask_first(self, ask: Ask) -> Mapping[str, Any]:
        """Ask for the gradient without clipping, before the clipped one."""
        self._plain = ask(send_gradient_sum, {"sums": self.descent.weights}, Unclipped())["sums"]
        return {}

    def update(self, noisy: Gradients) -> None:
        """Take one step along the mixture."""
        plain, clipped = _norm(self._plain), _norm(noisy)
        ratio = float(clipped / plain) if plain > 0 else 1.0
        super().update(self.mixture(self._plain, noisy, ratio))


class DirectionError(ClippingError):
    """Steps along `gbar |g| / |gbar|`: the direction of the clipped gradient, the length of the other."""

    def mixture(self, plain: Gradients, clipped: Gradients, ratio: float) -> Gradients:
        """Return the step of the class; an empty batch, or one of zero gradients, makes no step."""
        return {name: value / ratio if ratio else value for name, value in clipped.items()}


class MagnitudeError(ClippingError):
    """Steps along `g |gbar| / |g|`: the direction of the gradient, the length of the clipped one."""

    def mixture(self, plain: Gradients, clipped: Gradients, ratio: float) -> Gradients:
        """Return the step of the class."""
        return {name: value * ratio for name, value in plain.items()}


def _norm(tensors: Gradients) -> Tensor:
    """Return the Euclidean norm over all tensors together."""
    return torch.stack([value.double().square().sum() for value in tensors.values()]).sum().sqrt()
