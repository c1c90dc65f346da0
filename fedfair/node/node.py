"""A node: computes on the records of its clients, and adds noise to what leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.datasets.features.lazy_rows import LazyRows
from fedfair.datasets.partition import Shares
from fedfair.fairness.group_counts import GroupCounts, Scores
from fedfair.fairness.reject_option import RejectOption
from fedfair.gradients.kernels import FastLinear, keep_freed
from fedfair.gradients.layer_gradients import Gradients, LayerGradients, Materialised, memory_format
from fedfair.gradients.layer_probe import Loss, Probe, WeightedProbe, padding_rows, trained_parameters, without_rows
from fedfair.gradients.model_state import forgetting
from fedfair.mechanisms.noise import Trust
from fedfair.mechanisms.randomness import balls_in_bins, poisson
from fedfair.models.optimizers import make_optimizer
from fedfair.models.published import loss
from fedfair.node.large_batches import probe_of
from fedfair.node.noisy_sums import Contribution, clipped_sum, exact_counts, is_bounded, noisy_counts, release
from fedfair.node.vectorised_training import local_updates
from fedfair.protocol.local_budget import proximal_share
from fedfair.protocol.round import LocalTraining, Round
from fedfair.secure_sums.party import Party


class ClientError(Exception):
    """A client cannot take part in a round; the message names the client and says why."""


class Batch(NamedTuple):
    """The records of one batch on a node: a probe of their gradients, groups `[B]`, `x`, `y`, and rows in the data."""

    probe: Probe
    groups: Tensor
    x: Tensor
    y: Tensor
    rows: Tensor


class Objective(NamedTuple):
    """What a record's gradient is of: a loss, and what it compares outputs with, from `y` `[B]` and `groups` `[B]`.

    What is made of a record's label and group may depend on nothing else but public numbers.
    """

    loss: Loss
    targets: Callable[[Tensor, Tensor], Tensor]


class Node:
    """Some clients of a run, by number, with the records that each holds and one model to compute with.

    Where all clients start from the same weights, their records go through the model together: a sum over clients is a
    sum over records. Every client adds its own noise. The weights that a method takes lie on the node's `device`, like
    the model.

    `kept` is the latest batch drawn by the operating system: the label of its round, and its rows; or of an epoch of
    balls in bins, the step that each record is in. It stays with the node (`fedfair.client_app`), so that the exchanges
    of a round use one batch. `left_out` is what training records add to their own scores, with the path and the
    curvature it is of (`fedfair.moments.leave_one_out`).
    """

    def __init__(self, clients: Mapping[int, Parts], model: nn.Module, device: str, loss: Loss = loss) -> None:
        keep_freed()
        self.clients = clients if isinstance(clients, Shares) else Shares.joined(clients)
        self.model, self.device, self.loss = model, device, loss
        self._parameters, _ = trained_parameters(model)
        self._padding = padding_rows(model)
        self.kept: tuple[str, Tensor] | None = None
        self.left_out: tuple[tuple[Tensor, Tensor], Tensor] | None = None
        self.party: Party | None = None
        self._last: tuple[tuple[str | None, int, str, tuple[float, ...]], list[Tensor], Batch] | None = None

    def counts(self, weights: Mapping[str, Tensor], round_: Round) -> Contribution:
        """Return the counts of the round's query over its batch, with each client's share of the noise."""
        if not self.clients:
            return Contribution({}, None)
        probe, groups = self.batch(weights, round_)[:2]
        return Contribution({}, noisy_counts(exact_counts(probe, groups, round_), round_, self.clients))

    def gradient_sum(self, weights: Mapping[str, Tensor], round_: Round) -> Contribution:
        """Return `sum_i c_i g_i` over the round's batch, and counts if it asks for them, with the clients' noise."""
        if not self.clients:
            return Contribution({}, None)
        return release(*self.batch(weights, round_)[:2], round_, self.clients)

    def exact_gradient_sum(self, weights: Mapping[str, Tensor], round_: Round) -> Gradients:
        """Return `sum_i c_i g_i` over the round's batch, without noise: not for anybody else before it has some."""
        return clipped_sum(*self.batch(weights, round_)[:2], round_)

    def local_epochs(self, weights: Mapping[str, Tensor], round_: Round) -> Contribution:
        """Train every client for a local epoch.

        Return the sum of the trained weights, each times its client's share in the average, and the sum of the clients'
        noisy counts, each averaged over its steps. Raises `ValueError` if the round does not say how to train.
        """
        sums: Gradients = {}
        counted: Tensor | None = None
        for number in self.clients:
            trained, counts = self._local_epoch(number, weights, round_)
            share = _training_of(round_).weights[number]
            sums = {name: sums.get(name, 0) + share * value for name, value in trained.items()}
            if counts is not None:
                counted = counts if counted is None else counted + counts
        return Contribution(sums, counted)

    def corrected_epochs(self, weights: Mapping[str, Tensor], round_: Round, corrections: Mapping[str, Tensor]
                         ) -> Contribution:
        """Train every client for a local epoch, in which each step adds a correction of its own to the noisy gradient.

        It comes after the noise, so it changes no privacy.

        Args:
            weights: Weights that all clients start from.
            round_: The round.
            corrections: Corrections of all clients of the run, `[clients, *shape]` by name.

        Returns:
            The trained weights in the same shape; 0 for clients of other nodes.

        Raises:
            ValueError: For corrections of another shape, or a round that does not say how to train.
        """
        clients = len(_training_of(round_).sizes)
        sums = {name: value.new_zeros(clients, *value.shape) for name, value in weights.items()}
        if {name: own.shape for name, own in corrections.items()} != {name: own.shape for name, own in sums.items()}:
            raise ValueError("the server's corrections are not of the shape of every client's weights: do all nodes "
                             "run the same program?")
        for number in self.clients:
            own = {name: value[number] for name, value in corrections.items()}
            trained, _ = self._local_epoch(number, weights, round_, own)
            for name, value in trained.items():
                sums[name][number] = value
        return Contribution(sums if self.clients else {}, None)

    def evaluate(self, weights: Mapping[str, Tensor], split: str, gradient_norms: bool,
                 threshold: RejectOption | None = None, favourable: int | None = None, confusion: bool = False,
                 by_client: int = 0) -> GroupCounts:
        """Count by group the model's decisions on one part ("train", "valid", "test") of the records; not private.

        With a `threshold`, count its decisions. Scores are those of the `favourable` class; `confusion` counts labels
        with predictions. With `by_client`, the number of all clients, they take the place of the groups.
        """
        part: GroupedDataset = getattr(self.clients.together, split)
        total = GroupCounts.zeros(by_client or len(part.names), part.classes, confusion)
        holders = self.clients.holders(split)
        for rows, x, y, group in self.portions(weights, split):
            counted = holders[rows].to(self.device) if by_client else group
            norms = probe_of(self.model, self.loss, x, y).norms if gradient_norms else torch.zeros(len(x))
            with torch.no_grad(), FastLinear(), forgetting(self.model):
                output = self.model(x)
                predicted = threshold.predict(output, group) if threshold else output.argmax(1)
                total = total + GroupCounts.of(predicted, y, counted, self.loss(output, y), norms, total,
                                               Scores(output, favourable))
        return total

    def portions(self, weights: Mapping[str, Tensor], split: str) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Set the model to `weights`, and yield the rows, `x`, `y` and `group` of a part's records, some at a time."""
        self._set(weights)
        part: GroupedDataset = getattr(self.clients.together, split)
        for rows in part.portions(torch.arange(len(part))):
            yield rows, *self._batch(part, rows)

    def training_records(self, weights: Mapping[str, Tensor]) -> GroupedDataset:
        """Set the model to `weights`, and return the training records of all clients of the node."""
        self._set(weights)
        return self.clients.together.train

    def updates(self, weights: Mapping[str, Tensor], round_: Round, drawn: Sequence[int]
                ) -> Iterator[tuple[list[int], LayerGradients]]:
        """Train each of the clients `drawn` from `weights` by itself, and yield their updates, some clients at a time.

        Raises `ValueError` if the round does not say how to train.
        """
        if round_.local_sgd is None:
            raise ValueError("an update needs to know how to train: the round has no `local_sgd` part")
        for turn in local_updates(self.model, weights, self.clients, drawn, round_.local_sgd, round_.step, self.device):
            yield turn.clients, Materialised(turn.values)

    def _local_epoch(self, number: int, weights: Mapping[str, Tensor], round_: Round,
                     correction: Mapping[str, Tensor] | None = None) -> tuple[Gradients, Tensor | None]:
        """Take one client's private steps on its records; return the trained weights and the average noisy counts.

        There is a `LocalEpoch` of steps, each with the full noise, by a new optimiser. The `correction` of gradients
        and the proximal term, whose own step comes after each of these (`proximal_share`), look at no record: they
        change no privacy. A client without records returns the weights as they are.
        """
        local = _training_of(round_)
        data, epoch = self.clients.training(number), local.epoch(number)
        if epoch.steps == 0:
            return dict(weights), None
        alone = replace(round_, rates=(epoch.rate,) * len(round_.rates), trust=Trust.LOCAL,
                      noise_multiplier=local.noise_multipliers[number])
        trained = {name: nn.Parameter(value.clone()) for name, value in weights.items()}
        optimizer = make_optimizer(local.optimizer, trained, local.learning_rate, local.weight_decay, local.momentum)
        counts: list[Tensor] = []
        back = proximal_share(local.learning_rate, local.proximal)
        for step in range(round_.step * epoch.steps, (round_.step + 1) * epoch.steps):
            now = replace(alone, step=step)
            probe, groups = self._sample(data, {name: p.data for name, p in trained.items()}, now, draw(data, now))[:2]
            released = release(probe, groups, now, [number])
            released = released._replace(sums=without_rows(released.sums, self._padding))
            for name, parameter in trained.items():
                mean = released.sums[name] / epoch.batch_size
                parameter.grad = mean if correction is None else mean + correction[name]
            optimizer.step()
            for name, parameter in trained.items() if back else ():
                parameter.data.lerp_(weights[name], back)
            counts += [released.counts] if released.counts is not None else []
        return {name: p.data for name, p in trained.items()}, torch.stack(counts).mean(0) if counts else None

    def forget_batches(self, but: str = "") -> None:
        """Forget drawn batches, except a kept one whose round has the label `but`: the next exchange draws anew."""
        self._last = None
        if self.kept is not None and self.kept[0] != but:
            self.kept = None

    def batch(self, weights: Mapping[str, Tensor], round_: Round) -> Batch:
        """Return the round's batch over all clients of the node at `weights`; keep it for later exchanges.

        Raises `ValueError` for a round of another number of groups.
        """
        _refuse_other_groups(self.clients.together.train, round_)
        values, when = list(weights.values()), (round_.key, round_.step, round_.label, round_.rates)
        if self._last and self._last[0] == when and all(map(torch.equal, self._last[1], values)):
            self._set(weights)
            return self._last[2]
        copies = [value.clone() for value in values]  # a server in this process steps from the values in place
        batch = self._sample(self.clients.together.train, weights, round_, self._rows(round_))
        self._last = (when, copies, batch)
        return batch

    def batch_of(self, objective: Objective, weights: Mapping[str, Tensor], round_: Round) -> Batch:
        """Return the same batch, with the gradients of another objective; it is not kept for later exchanges.

        Raises `ValueError` for a round of another number of groups.
        """
        return self._probed(objective, self.clients.together.train, weights, round_, self._rows(round_))

    def _rows(self, round_: Round) -> Tensor:
        """Return the rows of the round's batch over all clients; one that the operating system draws is kept.

        Raises `ClientError` in the middle of an epoch of balls in bins of which it has kept nothing.
        """
        together = self.clients.together.train
        if round_.key is not None:
            return draw(together, round_)
        if self.kept is None or self.kept[0] != round_.label:
            if round_.bins is not None and round_.step % round_.bins:
                raise ClientError("the node no longer knows which records were in the epoch's steps before, as it was "
                                  'started again: run anew, or take sampling = "poisson"')
            self.kept = (round_.label, (draw if round_.bins is None else _places)(together, round_))
        return _rows_of(self.kept[1], round_)

    def _sample(self, data: GroupedDataset, weights: Mapping[str, Tensor], round_: Round, rows: Tensor) -> Batch:
        """Return the batch of the records of `data` at `rows`, with the gradients of the node's loss."""
        return self._probed(Objective(self.loss, _labels), data, weights, round_, rows)

    def _probed(self, objective: Objective, data: GroupedDataset, weights: Mapping[str, Tensor], round_: Round,
                rows: Tensor) -> Batch:
        """Return the batch of the records of `data` at `rows`, without those whose gradient is not finite.

        They are left out as if they had not been drawn: an error would reveal the record. Raises `ClientError` naming
        the client only if the round bounds nothing, so that there is nothing to protect.
        """
        self._set(weights)
        while True:
            x, y, groups = self._batch(data, rows)
            probe = probe_of(self.model, objective.loss, x, objective.targets(y, groups))
            if len(data.weight):
                probe = WeightedProbe(probe, data.weight[rows])
            finite = probe.norms.isfinite().cpu()
            if bool(finite.all()):
                return Batch(probe, groups, x, y, rows)
            if not is_bounded(round_):
                raise self.not_finite(data.records[rows[~finite][0]], round_)
            rows = rows[finite]

    def not_finite(self, record: Tensor, round_: Round) -> ClientError:
        """Return what is wrong where nothing bounds a record, and its gradient is not finite."""
        row = int((self.clients.together.train.records == record).nonzero())
        return ClientError(
            f"client {self.clients.holder(row)} has a gradient that is not finite at step {round_.step}: nothing was "
            "added to the model; look for extreme values among its records, or take a smaller learning rate")

    def _batch(self, data: GroupedDataset, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features, `y` and `group` of some rows, on the device.

        They are copies, since a model may overwrite them, but for features that are made anew each time, of all rows.
        """
        y, groups = (part.index_select(0, rows).to(self.device) for part in (data.y, data.group))
        is_all = isinstance(data.x, LazyRows) and len(rows) == len(data) and bool((rows.diff() > 0).all())
        return data.features(slice(None) if is_all else rows, self.device), y, groups

    def _set(self, weights: Mapping[str, Tensor]) -> None:
        """Point the model's parameters at `weights`, without a copy unless it keeps channels last in memory."""
        for name, parameter in self._parameters.items():
            parameter.data = weights[name].to(memory_format=memory_format(parameter))


def _training_of(round_: Round) -> LocalTraining:
    """Return how clients train in local epochs; raise `ValueError` if the round does not say."""
    if round_.local is None:
        raise ValueError("a local epoch needs to know how to train: the round has no `local` part")
    return round_.local


def _refuse_other_groups(data: GroupedDataset, round_: Round) -> None:
    """Raise `ValueError` for sampling rates of another number of groups than there are: noise follows the groups."""
    if len(round_.rates) != len(data.names):
        raise ValueError(f"the round has sampling rates of {len(round_.rates)} groups, but there are "
                         f"{len(data.names)}: give one for each")


def _labels(y: Tensor, groups: Tensor) -> Tensor:
    """Return the labels, which are all that the node's own loss needs."""
    return y


def draw(data: GroupedDataset, round_: Round) -> Tensor:
    """Return the rows of the round's batch among the records of `data`; raise `ValueError` for other groups."""
    _refuse_other_groups(data, round_)
    if round_.bins is not None:
        return _rows_of(_places(data, round_), round_)
    same = len(set(round_.rates)) == 1
    rates = round_.rates[0] if same else torch.tensor(round_.rates, dtype=torch.float64)[data.group]
    return poisson(round_.key, round_.step, data.records, rates)


def _places(data: GroupedDataset, round_: Round) -> Tensor:
    """Return the step that each record is in, in the round's epoch of balls in bins."""
    assert round_.bins is not None
    return balls_in_bins(round_.key, round_.step // round_.bins, data.records, round_.bins)


def _rows_of(drawn: Tensor, round_: Round) -> Tensor:
    """Return the rows of the round's batch, given these, or the places of its epoch."""
    return drawn if round_.bins is None else (drawn == round_.step % round_.bins).nonzero().flatten()
