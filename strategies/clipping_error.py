"""Training with one of clipping's two errors alone, without noise. Esipova et al. 2023, section 4 and Table 1."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from torch import Tensor

from fedfair.gradients.layers import Gradients
from fedfair.mechanisms.clipping import ClipRule, Flat, Unclipped
from fedfair.mechanisms.noise import Trust
from strategies.server.releases.risk_meter import other_steps
from strategies.server.replies.requests import added
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

    def noise_multipliers(self) -> tuple[float, ...]:
        """Return zeros: no noise is added."""
        return (0.0,) * len(self.schedules())

    @abstractmethod
    def mixture(self, plain: Gradients, clipped: Gradients, ratio: float) -> Gradients:
        """Return the step from g and gbar, where `ratio` is `|gbar| / |g|`."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                        ) -> Iterable[Message]:
        """Ask for the gradient without clipping, then for the clipped one."""
        asked = super().configure_train(server_round, arrays, config, grid)
        assert self._round is not None
        without = self._ask(self.exchange, grid, weights=arrays, round_=replace(self._round, rule=Unclipped()))
        self._plain = added(without, "sums", self.descent.weights)
        return asked

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
