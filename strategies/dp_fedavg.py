"""DP-FedAvg: participants train by themselves, and the update of each is clipped as a whole.

McMahan et al. 2018, Algorithm 1, with equal weights and the estimator that divides by the public expected number of
participants; adaptive clipping by a private quantile, Andrew et al. 2021, Algorithm 1.

FedAvg without privacy: the reference for what participant-level privacy costs. McMahan et al. 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from fedfair.mechanisms.clipping import ClipRule, Flat, Unclipped
from fedfair.mechanisms.counting import AtMost, CountQuery
from fedfair.models.optimizers import Optimizer, Sgd
from fedfair.node.participant_updates import send_update_sum
from fedfair.protocol.fields import Positive
from fedfair.protocol.round import LocalSgd
from strategies.server.calibration import NoisePlan
from strategies.server.strategy import Strategy


class DpFedavg(Strategy):
    """Protects a participant with all its records: neighbouring data sets differ by one client.

    Symbols:

        W   clients, public               q     rate at which each joins a round (`participation`)
        S   clip norm of an update        S0    the first S (`clip_norm`)
        sigma, s1   noise multipliers of the sum and of the count

    A client that joins takes `local_epochs` of plain SGD (`learning_rate`, batches of `batch_size`) from the common
    weights w to its own w_i, without noise. The server's step is

        w <- w + server_learning_rate * (sum_i (w_i - w) min(1, S / |w_i - w|) + N(0, (sigma S)^2)) / (q W)

    With a `quantile`, S follows that quantile of the norms: with B~ the number of updates that were not clipped, plus
    N(0, s1^2), on the same sample and so in one event with the sum, each round ends with

        S <- S exp(-clip_learning_rate (B~ / (q W) - quantile))

    The noise of a round is relative to the S that clipped in it. So that no count, however noisy, can end a run, S
    stays within a factor of 10^6 of S0. `server_momentum` is that of `torch.optim.SGD` (Hsu et al. 2019). An epoch is
    1 / (q local_epochs) rounds: the length in which a record is met once on average.
    """

    class Options(Strategy.Options):
        """See `DpFedavg`; without a `quantile`, S stays at S0."""

        participation: Annotated[float, Field(gt=0, le=1)] = 0.5
        local_epochs: Annotated[int, Field(ge=1, le=1_000)] = 1
        server_learning_rate: Positive = 1.0
        server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
        quantile: Annotated[float, Field(gt=0, lt=1)] | None = None
        clip_learning_rate: Positive = 0.2

    modes = ("epoch",)
    needs = "each client a participant"
    default_sync = "epoch"
    protects = "participant"
    exchange = send_update_sum
    state = ("clip_norm",)
    options: Options

    def prepare(self) -> None:
        """Start S at S0; raise `ValueError` for another local optimiser than plain SGD."""
        if self.training.optimizer != "sgd" or self.training.momentum:
            raise ValueError(f"dp-fedavg trains each participant by plain SGD, but optimizer is "
                             f"{self.training.optimizer!r} with momentum {self.training.momentum:g}: take sgd and 0; "
                             "the server's is options.server_momentum")
        if self.training.local_epochs != 1:
            raise ValueError(f"local_epochs is {self.training.local_epochs}, but a participant's are an option of the "
                             "method: give options.local_epochs")
        self.clip_norm = self.training.clip_norm

    def rule(self) -> ClipRule:
        """Return one clip norm for all updates."""
        return Flat(self.clip_norm)

    def query(self) -> CountQuery | None:
        """Count the updates that are not clipped, if S follows a quantile."""
        return None if self.options.quantile is None else AtMost(self.clip_norm)

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Set the next S from a noisy count `[1]`."""
        assert self.options.quantile is not None
        above = float(counts) / expected_batch - self.options.quantile
        log_bound = math.log(self.clip_norm) - self.options.clip_learning_rate * above
        first = self.training.clip_norm
        self.clip_norm = max(min(math.exp(min(log_bound, 700.0)), 1e6 * first), 1e-6 * first)

    def local_training(self) -> None:
        """Return None: the sum of updates is protected, not the training of each client."""

    def local_sgd(self) -> LocalSgd:
        """Return how a client that joins trains."""
        training = self.training
        return LocalSgd(epochs=self.options.local_epochs, batch_size=training.batch_size,
                        learning_rate=training.learning_rate, weight_decay=training.weight_decay, seed=self.task.seed,
                        proximal=training.proximal)

    def optimizer(self, parameters: dict[str, nn.Parameter]) -> Optimizer:
        """Return SGD, which steps along the mean update."""
        options = self.options
        return Sgd(parameters.values(), options.server_learning_rate, options.server_momentum)

    def rates(self) -> tuple[float, ...]:
        """Return `participation` for every group: all clients join at the same rate, whatever records they hold."""
        return (self.options.participation,) * len(self.population.names)

    def expected_batch(self, clients: Sequence[int] | None = None) -> float:
        """Return `q W`."""
        return self.options.participation * len(self.population.sizes)

    @property
    def rounds_per_epoch(self) -> float:
        """Rounds in which a record is met once on average."""
        return 1 / (self.options.participation * self.options.local_epochs)


class Fedavg(DpFedavg):
    """DP-FedAvg without clipping or noise, whatever the settings say; the guarantee is none."""

    needs = "no guarantee: nothing is clipped, and no noise added"

    def rule(self) -> ClipRule:
        """Return the rule that leaves updates as they are."""
        return Unclipped()

    def query(self) -> None:
        """Return None: without a clip norm nothing is counted."""

    def noise_plan(self) -> NoisePlan:
        """Return zeros: no noise is added."""
        return NoisePlan((0.0,) * len(self.schedules()))
