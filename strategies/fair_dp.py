"""FairDP: groups train by themselves under a small last layer. Tran K. et al. 2023, as run by Yang et al. 2024."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from pydantic import Field

from fedfair.gradients.layers import Gradients
from fedfair.protocol.bounds import Positive
from fedfair.protocol.messages import pack, unpacked
from strategies.gs_dp_sgd import GsDpSgd
from strategies.server.strategy import Strategy


class FairDp(GsDpSgd):
    """GS-DP-SGD that starts every round from `W min(1, M / |W|)`, where W are the weights of the last layer.

    W is the last of the model's parameters that has two or more dimensions, without its bias, and |W| its Euclidean
    (Frobenius) norm; M is `max_norm`, 0.1 to 1 in the papers. Scaling reads no record, so it costs no privacy; the
    model that the last round returns is not scaled again. In the last tenth of the rounds (`late_share`) the optimiser
    is plain SGD with `late_learning_rate`, as in the authors' runs; a `late_share` of 0 keeps the run's own.
    """

    class Options(Strategy.Options):
        """See `FairDp`."""

        max_norm: Positive = 1
        late_share: Annotated[float, Field(ge=0, le=1)] = 0.1
        late_learning_rate: Positive = 0.005

    options: Options

    def prepare(self) -> None:
        """Check what GS-DP-SGD checks, and set the optimiser of the last rounds."""
        super().prepare()
        late = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": self.options.late_learning_rate}
        self._late = self.training.model_copy(update=late)

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                        ) -> Iterable[Message]:
        """Scale the last layer, then train as GS-DP-SGD does; in the last rounds by plain SGD."""
        if server_round > self.rounds - math.ceil(round(self.options.late_share * self.rounds, 9)):
            self.training = self._late
        scaled = pack(with_small_last_layer(unpacked(arrays), self.options.max_norm))
        return super().configure_train(server_round, scaled, config, grid)


def with_small_last_layer(weights: Gradients, max_norm: float) -> Gradients:
    """Return the weights, with the last matrix among them scaled down to `max_norm` if its norm is larger."""
    last = [name for name, value in weights.items() if value.dim() > 1][-1]
    return {**weights, last: weights[last] * (max_norm / weights[last].norm()).clamp(max=1)}
