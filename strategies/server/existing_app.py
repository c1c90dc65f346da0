"""Privacy by group for an existing Flower app: a clip rule and a ledger around the app's own strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedfair.accounting import Ledger
from fedfair.mechanisms.noise import Trust
from fedfair.node.node import ClientError
from fedfair.protocol.fields import marked
from fedfair.protocol.local_budget import LocalBudget, LocalEpoch
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task
from strategies import find_strategy
from strategies.server.budget_shares import COUNT_NOISE_RATIO
from strategies.server.by_group import refuse_tables
from strategies.server.known_clients import KnownClients, refuse_doubles
from strategies.server.population import Population
from strategies.server.replies.app_reply_checks import RECORD, Told, checked, refuse_infinite_average
from strategies.server.replies.foreign_values import safe
from strategies.server.training import Training

_SILENT = "local epochs whose cost is not known"


class PrivateTraining(FlowerStrategy):
    """Wraps the strategy of an app, whose clients call `fedfair.node.private_training.train_privately`.

    Every round each client trains by itself, under the clip rule of a method and with its own noise (sync = "epoch"),
    so what it sends is protected from everybody. The app's strategy samples clients and averages, which is
    post-processing. The method learns from the noisy counts. Every record must be held by one client only. A node that
    comes back under another id is known by its name, or is not asked. The proximal term of Flower's FedProx is the
    clients' too, beside the private gradients. Raises `ValueError` for settings, groups or
    methods that do not fit.

    Args:
        strategy: The app's own strategy.
        groups: Names of the groups in the order of their numbers, `[K]`.
        method: Name of the method that clips: one that trains in local epochs and protects records.
        rounds: With `target_epsilon`, the most rounds that there will be; without it, None.
        **settings: Settings of `Training` that say how a batch is clipped and how the optimiser steps, with the
            method's own under `options`. What the app decides is refused. With `target_epsilon` in place of
            `noise_multiplier` each client finds the noise for its own number of records.

    Attributes:
        ledger: Every client's local epochs, and what they cost.
        method: The method, with its state.

    Examples:
        >>> from flwr.serverapp.strategy import FedAvg
        >>> private = PrivateTraining(FedAvg(), ("women", "men"), "dpsgd-f", target_epsilon=2.0, rounds=10)
        >>> private.method.rule(), list(private.ledger.unprotected)
        (PerGroup(clip_norms=(0.5, 0.5)), ["metrics that the app's clients send"])
    """

    def __init__(self, strategy: FlowerStrategy, groups: Sequence[str], method: str = "dpsgd-f", *,
                 rounds: int | None = None, **settings: Any) -> None:
        _refuse_decided_by_app(settings)
        _refuse_repeated(groups)
        self._budget = _budget(settings, rounds)
        training = Training(sync="epoch", randomness="system", **{**settings, "target_epsilon": None})
        kind = find_strategy(method)
        _refuse_unsuited(training)
        if "epoch" not in kind.modes or kind.protects != "record" or kind.local_exchange is not None:
            raise ValueError(f"{method} does not train in local epochs that protect records and that an app's clients "
                             "know: take dpsgd, dpsgd-f, dpsgd-f-quantile, dpsgd-global or dpsgd-global-adapt")
        population = Population(tuple(groups), ((training.batch_size,) * len(groups),), (0,) * len(groups), ("0", "1"))
        self.strategy, self.training = strategy, training
        # Clients refuse discrete noise themselves where their model is not in float64.
        self.method = kind(Task(dtype="float64"), training, population)
        self.ledger = Ledger(groups, training.delta, Trust.LOCAL, accountant=training.accountant,
                             nominal=self.method.unproved(),
                             public="names of clients, their numbers of records, batch size; each record lies with one "
                                    "client")
        self.ledger.expose("metrics that the app's clients send", "as the app computes them")
        self._unpaid: dict[int, list[Round]] = {}  # by node, the plans that were sent and not yet charged
        self._clients = KnownClients()
        self._asked: dict[int, Message] = {}  # by node, the messages of the latest round that are not answered
        self._plan: Round | None = None

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                        ) -> Iterable[Message]:
        """Add the round's plan to each of the app's own messages.

        Args:
            server_round: Number of the round, from 1.
            arrays: Weights of the model by name.
            config: Passed on to the app's strategy.
            grid: The nodes.

        Raises:
            ValueError: For a round too many, or if no node that is asked can be told apart from all others.
        """
        if self._budget is not None and server_round > self._budget.rounds:
            raise ValueError(f"round {server_round} would exceed target_epsilon, whose noise is for rounds = "
                             f"{self._budget.rounds}: give as many rounds as the app's strategy has (num_rounds)")
        noise = self.method.noise.multipliers[:1] if self._budget is None else ()  # else nobody takes the plan as it is
        local = self.training.local_epoch(noise, weights=(1.0,), sizes=(0,), bounds_fixed=self.method.has_fixed_bounds)
        plan = replace(self.method.plan(server_round - 1), rates=(1.0,) * len(self.ledger.groups), clients=1,
                       local=local, budget=self._budget)
        sampled = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._clients.begin(grid.get_node_ids())
        asked = self._clients.recognisable(sampled)
        self._asked = {message.metadata.dst_node_id: message for message in asked}
        self._plan = plan
        for message in asked:
            node = message.metadata.dst_node_id
            own = replace(plan, needs_name=self._clients.came_later(node),
                          local=replace(local, proximal=_proximal(message.content)))
            message.content = RecordDict({**message.content, RECORD: ConfigRecord({"plan": own.to_json()})})
            self._unpaid.setdefault(node, []).append(plan)
        return asked

    def aggregate_train(self, server_round: int, replies: Iterable[Message]
                        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Enter what was released, learn from the counts, and let the app's strategy average.

        A client whose answer did not come is charged too, as soon as its size is known; until then the ledger names it.

        Args:
            server_round: Number of the round, from 1.
            replies: Answers of the nodes.

        Returns:
            What the app's strategy returns.

        Raises:
            fedfair.node.node.ClientError: If a node did not train privately, sent what cannot be an answer, or has
                the name of another.
            ValueError: If no client that answered has a record.
        """
        received, told, failed = list(replies), dict[int, Told](), []
        weight = getattr(self.strategy, "weighted_by_key", None)
        for reply in received:
            node = reply.metadata.src_node_id
            try:
                if not reply.has_error():
                    told[node] = checked(reply, self._asked.pop(node, None), self._plan, self._clients, weight)
                    self._clients.enter(node, told[node].name, told[node].size)
            except ClientError as error:
                failed.append(error)
        self.ledger.count_records(self._clients.records)
        for node in filter(self._clients.__contains__, list(self._unpaid)):
            for plan in self._unpaid.pop(node):
                self._enter(node, plan)
        self._name_unpaid()
        if failed:
            raise failed[0]
        refuse_doubles(record.name for record in told.values())
        if told and not any(record.size for record in told.values()):
            raise ValueError("no client that answered has a record, so there is nothing to average: look at the files "
                             "or the partition that they read, and start again")
        self._learn(told)
        arrays, metrics = self.strategy.aggregate_train(server_round, [_safe(reply) for reply in received])
        refuse_infinite_average(arrays)
        return arrays, metrics

    def _learn(self, told: Mapping[int, Told]) -> None:
        """Let the method learn from the counts that came, if any."""
        counts = [record.counts for record in told.values() if record.counts is not None]
        if counts:
            expected = sum(LocalEpoch.of(record.size, self.training.batch_size).batch_size for record in told.values())
            total = torch.stack(counts).sum(0)
            if not bool(total.isfinite().all()):
                raise ClientError("the counts of all nodes are each finite, but so large that their sum is not: look "
                                  "at the programs that they run")
            self.method.learn(total, float(expected))

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                           ) -> Iterable[Message]:
        """See `flwr.serverapp.strategy.Strategy`: the messages of the app's strategy."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """See `flwr.serverapp.strategy.Strategy`: the metrics of the app's strategy."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Print the summary of the app's strategy."""
        self.strategy.summary()

    def _name_unpaid(self) -> None:
        """Name in the ledger the nodes that were asked and have never sent their size."""
        self.ledger.settle(_SILENT)
        if self._unpaid:
            asked = ", ".join(f"{node} {len(plans)} times" for node, plans in sorted(self._unpaid.items()))
            self.ledger.expose(_SILENT, f"nodes that were asked and have not answered yet: {asked}; they are charged "
                                        "as soon as they tell the number of their records")

    def _enter(self, node: int, plan: Round) -> None:
        """Enter a client's local epoch; the client may hold records of any group."""
        client = self._clients[node]
        for event, steps, _ in plan.of_size(client.size).charges([(True,) * len(self.ledger.groups)]):
            self.ledger.record(replace(event, client=client.number), steps)


def _budget(settings: Mapping[str, Any], rounds: int | None) -> LocalBudget | None:
    """Return what the clients find their noise by, or None for the same noise multiplier for all.

    Raises `ValueError` unless there is one of target_epsilon, with rounds, and noise_multiplier.
    """
    target = settings.get("target_epsilon")
    if target is None:
        if rounds is not None:
            raise ValueError(f"rounds is {rounds}, which only target_epsilon needs: leave it out, or give "
                             "target_epsilon in place of noise_multiplier")
        return None
    if "noise_multiplier" in settings:
        raise ValueError(f"target_epsilon is {target} and noise_multiplier is {settings['noise_multiplier']}: give one "
                         "of them")
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
        raise ValueError(f"target_epsilon is {target} and rounds is {rounds}: say for how many rounds it must last, "
                         "for example rounds=10")
    checked = Training(**settings)  # before anything is computed from them
    refuse_tables(checked.tables, "a plan by which every client finds its noise", ("clip_norm",))
    return LocalBudget(epsilon=float(target), delta=checked.delta, accountant=checked.accountant, rounds=rounds,
                       count_ratio=COUNT_NOISE_RATIO, count_noise=checked.count_noise_multiplier)


def _proximal(content: RecordDict) -> float:
    """Return the weight of the proximal term that the app's strategy sends, as Flower's FedProx does; 0 for none."""
    return max((float(record["proximal-mu"]) for record in content.config_records.values()  # type: ignore[arg-type]
                if "proximal-mu" in record), default=0.0)


def _refuse_decided_by_app(settings: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a setting that the app decides."""
    for field in filter(settings.__contains__, marked(Training, "decided_by_app")):
        raise ValueError(f"{field} is {settings[field]!r}, but an app trains as many rounds, with as many clients, "
                         "as its own strategy says, in local epochs with randomness of the operating system: leave "
                         "it out")


def _refuse_repeated(groups: Sequence[str]) -> None:
    """Raise `ValueError` if two groups have one name."""
    repeated = [name for name in groups if list(groups).count(name) > 1]
    if repeated:
        raise ValueError(f"group {repeated[0]!r} is named more than once among {', '.join(groups)}: give each "
                         "group a name of its own, in the order of their numbers")


def _refuse_unsuited(training: Training) -> None:
    """Raise `ValueError` for settings that need the sizes of all clients, or an evaluation by this package."""
    if training.group_epsilon is not None:
        raise ValueError(f"group_epsilon is {training.group_epsilon}, but the sizes of an app's clients are not known "
                         "in advance: give noise_multiplier or target_epsilon, and read the ledger")
    if training.sampling_rate is not None:
        raise ValueError(f"sampling_rate is {training.sampling_rate:g}, but the sizes of an app's clients are not "
                         "known in advance: give batch_size")
    if training.threshold != "none":
        raise ValueError(f"threshold is {training.threshold!r}, but an app evaluates its model itself: leave it "
                         "out")


def _safe(reply: Message) -> Message:
    """Return a reply whose error, which the app's strategy may log, is safe to show."""
    if reply.has_error() and reply.error.reason:
        reply.error = Error(reply.error.code, safe(reply.error.reason))
    return reply
