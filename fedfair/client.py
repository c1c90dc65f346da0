"""What one client computes on its own records, and what it adds so that it may leave the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedfair.clipping import sensitivity
from fedfair.datasets import GroupedDataset, Parts
from fedfair.fairness import GroupCounts
from fedfair.gradients import Probe, per_example
from fedfair.layers import Gradients
from fedfair.models import loss
from fedfair.noise import Trust, add_gaussian, client_share
from fedfair.randomness import generator
from fedfair.rounds import LocalTraining, Round
from fedfair.sampling import poisson

_EVALUATION_ROWS = 4096


class ClientError(Exception):
    """A client cannot take part in a round; the message names it and says why."""


class Contribution(NamedTuple):
    """What leaves a client: tensors to be added up over clients, and counts if the round asks for them."""

    sums: Gradients
    counts: Tensor | None


class Client:
    """One participant: its number in the run, the records it holds, and a model to compute with.

    The model may be shared with other clients of the same process: its parameters are set before every use.
    """

    def __init__(self, number: int, data: Parts, model: nn.Module, device: str) -> None:
        self.number, self.data, self.model, self.device = number, data, model, device
        self._last: tuple[tuple[int, int], list[Tensor], Probe, Tensor] | None = None

    def counts(self, weights: Mapping[str, Tensor], round_: Round) -> Contribution:
        """The counts of the round's query over its batch, with this client's share of their noise."""
        probe, groups = self._probe(weights, round_)
        return Contribution({}, self._noisy_counts(probe, groups, round_, client_share(round_.trust, round_.clients)))

    def gradient_sum(self, weights: Mapping[str, Tensor], round_: Round) -> Contribution:
        """`sum_i c_i g_i` over the round's batch, with this client's share of the noise; counts if asked for."""
        return self._release(weights, round_, client_share(round_.trust, round_.clients))

    def local_epoch(self, weights: Mapping[str, Tensor], round_: Round, local: LocalTraining) -> Contribution:
        """Private steps on the own records only, from `weights`: the trained weights times this client's share in the
        average, and the average of the steps' noisy counts.

        Takes max(1, int(N_c / b)) steps with rate min(1, b / N_c), each with the full noise, divided by min(b, N_c);
        the optimiser starts afresh. A client without records returns its share of the weights as they are.
        """
        records = len(self.data.train)
        trained = {name: nn.Parameter(value.clone()) for name, value in weights.items()}
        steps = max(1, records // local.batch_size)
        own = replace(
            round_, rates=(min(1.0, local.batch_size / records),) * len(round_.rates) if records else round_.rates,
            noise_multiplier=local.noise_multipliers[self.number], trust=Trust.LOCAL)
        optimizer = make_optimizer(local.optimizer, trained, local.learning_rate, local.weight_decay)
        counts: list[Tensor] = []
        for step in range(steps if records else 0):
            current = {name: parameter.data for name, parameter in trained.items()}
            released = self._release(current, replace(own, step=round_.step * steps + step), 1.0)
            for name, parameter in trained.items():
                parameter.grad = released.sums[name] / min(local.batch_size, records)
            optimizer.step()
            counts += [released.counts] if released.counts is not None else []
        share = local.weights[self.number]
        return Contribution({name: share * parameter.data for name, parameter in trained.items()},
                            torch.stack(counts).mean(0) if counts else None)

    def evaluate(self, weights: Mapping[str, Tensor], split: str, gradient_norms: bool) -> GroupCounts:
        """What the model does on one part ("train", "valid", "test") of the own records, by group; not private."""
        self._set(weights)
        part: GroupedDataset = getattr(self.data, split)
        total = GroupCounts.zeros(len(part.names), part.classes)
        for rows in torch.arange(len(part)).split(_EVALUATION_ROWS):
            x, y, group = (values[rows].to(self.device) for values in (part.x, part.y, part.group))
            norms = per_example(self.model, loss, x, y).norms if gradient_norms else torch.zeros(len(x))
            with torch.no_grad():
                output = self.model(x)
                total = total + GroupCounts.of(output.argmax(1), y, group, loss(output, y), norms, total)
        return total

    def _release(self, weights: Mapping[str, Tensor], round_: Round, share: float) -> Contribution:
        """The clipped gradient sum and the counts of a batch, each with `share` of the noise that one release needs."""
        assert round_.rule is not None
        probe, groups = self._probe(weights, round_)
        sums = probe.weighted_sum(round_.rule.coefficients(probe.norms, groups))
        if share and round_.noise_multiplier:
            deviation = share * round_.noise_multiplier * sensitivity(round_.rule, len(round_.rates))
            sums = add_gaussian(sums, deviation, generator(round_.seed, "noise", self.number + 1, round_.step))
        counts = self._noisy_counts(probe, groups, round_, share) if round_.query is not None else None
        return Contribution(sums, counts)

    def _noisy_counts(self, probe: Probe, groups: Tensor, round_: Round, share: float) -> Tensor:
        """The query's counts with `share` of the noise that one release needs."""
        assert round_.query is not None
        counts = round_.query.counts(probe.norms, groups, len(round_.rates))
        draws = generator(round_.seed, "counts", self.number + 1, round_.step)
        return add_gaussian({"counts": counts}, share * round_.count_noise_multiplier, draws)["counts"]

    def _probe(self, weights: Mapping[str, Tensor], round_: Round) -> tuple[Probe, Tensor]:
        """The probe of the round's batch and the groups of its records, kept for the round's second exchange."""
        values, when = list(weights.values()), (round_.seed, round_.step)
        if self._last and self._last[0] == when and all(map(lambda a, b: a is b, self._last[1], values)):
            return self._last[2], self._last[3]
        train = self.data.train
        rates = torch.tensor(round_.rates, dtype=torch.float64)[train.group] if len(set(round_.rates)) > 1 else None
        rows = poisson(round_.seed, round_.step, train.records, round_.rates[0] if rates is None else rates)
        self._set(weights)
        x, y, groups = (values[rows].to(self.device) for values in (train.x, train.y, train.group))
        probe = per_example(self.model, loss, x, y)
        if not bool(probe.norms.isfinite().all()):
            raise ClientError(
                f"client {self.number} has gradients that are not finite at step {round_.step}: nothing was added to "
                "the model; look for extreme values among its records, or take a smaller learning rate")
        self._last = (when, values, probe, groups)
        return probe, groups

    def _set(self, weights: Mapping[str, Tensor]) -> None:
        """Point the model's parameters at `weights`, without a copy."""
        for name, parameter in self.model.named_parameters():
            parameter.data = weights[name].to(self.device)


def make_optimizer(name: str, parameters: Mapping[str, nn.Parameter], learning_rate: float, weight_decay: float
                   ) -> torch.optim.Optimizer:
    """PyTorch's own SGD or Adam over named parameters."""
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name]
    return kind(parameters.values(), lr=learning_rate, weight_decay=weight_decay)
