"""SCAFFOLD under record-level privacy: Karimireddy et al. 2020, Algorithm 1, option II, with noisy local steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedfair.gradients.layer_gradients import Gradients
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.mechanisms.clipping import ClipRule, Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node.exchanges import send_corrected_epochs
from fedfair.protocol.fields import Positive
from strategies.server.strategy import Strategy


class Scaffold(Strategy):
    """Corrects every local step by how a client's gradients differ from all clients', so that sites do not drift apart.

    Symbols:

        x    weights that a round starts from    y_i  weights of client i after its K_i steps
        c_i  control of client i, 0 at first     c    sum_i p_i c_i
        p_i  share of client i in the average    lr   `learning_rate`

    Each step of client i is along its clipped and noisy mean gradient g, as in DP-SGD, plus the correction c - c_i:

        y_i <- y_i - lr (g - c_i + c)

    The clients that answered, S, then change

        c_i <- c_i - c + (x - y_i) / (K_i lr)
        x <- x + server_learning_rate sum_S p_i (y_i - x) / sum_S p_i

    The paper has equal p_i. Corrections are added after the noise, and follow from weights that were released before,
    so they read no record and cost nothing; but they carry the noise of these. The server computes and keeps the c_i,
    since it sees all that they follow from: a client that is started again, or misses a round, loses none. So a round's
    messages hold the weights of every client: it is for tens of sites, not thousands.
    """

    class Options(Strategy.Options):
        """See `Scaffold`."""

        server_learning_rate: Positive = 1.0

    modes = ("epoch",)
    default_sync = "epoch"
    needs = "clients that train by plain SGD, and a server that sees the noisy weights of each"
    local_exchange = send_corrected_epochs
    state = ("controls",)
    options: Options

    def prepare(self) -> None:
        """Start all c_i at 0; raise `ValueError` where steps are not plain SGD, or the server sees sums alone."""
        training = self.training
        if training.optimizer != "sgd" or training.momentum:
            raise ValueError(f"scaffold reads gradients off steps of plain SGD, but optimizer is "
                             f"{training.optimizer!r} with momentum {training.momentum:g}: take sgd and 0")
        if training.proximal:
            raise ValueError(f"proximal is {training.proximal:g}, but scaffold corrects the drift of clients by "
                             "itself, and would take the term's pull for a gradient: leave proximal out, or take dpsgd")
        if training.trust is Trust.DISTRIBUTED:
            raise ValueError('trust is "distributed", in which the server sees sums alone, but scaffold needs the '
                             'weights of each client, which carry its own noise in full: take trust = "local"')
        parameters, clients = trained_parameters(self.task.build_model())[0], len(self.population.sizes)
        self.controls: Gradients = {name: torch.zeros(clients, *value.shape, dtype=value.dtype)
                                    for name, value in parameters.items()}

    def rule(self) -> ClipRule:
        """Return one clip norm for all."""
        return Flat(self.training.clip_norm)

    def asked_besides(self) -> Mapping[str, Any]:
        """Send every client's correction, c - c_i: `[clients, *shape]` by name."""
        common = self._common()
        return {"tensors": {"corrections": {name: common[name] - own for name, own in self.controls.items()}}}

    def like_sums(self) -> Mapping[str, Tensor]:
        """Return tensors like those that nodes send: the weights of every client."""
        return self.controls

    def averaged(self, sums: Gradients, clients: Sequence[int]) -> Gradients:
        """Renew the controls of the clients that answered, and return x after the step along their mean update.

        Args:
            sums: Weights of every client after its steps, `[clients, *shape]` by name.
            clients: Numbers of the clients that answered.
        """
        common, started, local = self._common(), self.descent.weights, self.local_training()
        assert local is not None
        moved = {name: value - sums[name] for name, value in started.items()}  # x - y_i
        for client in clients:
            steps = local.epoch(client).steps
            for name, own in self.controls.items() if steps else ():
                own[client] += moved[name][client] / (steps * local.learning_rate) - common[name]
        shares = local.weights
        reach = self.options.server_learning_rate / sum(shares[client] for client in clients)
        return {name: value - reach * sum(shares[client] * moved[name][client] for client in clients)
                for name, value in started.items()}

    def _common(self) -> Gradients:
        """Return c by name."""
        shares = torch.tensor(self.client_weights(), dtype=torch.float64)
        return {name: torch.tensordot(shares.to(own.dtype), own, dims=1) for name, own in self.controls.items()}
