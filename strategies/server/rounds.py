"""A run of a method over nodes, round by round, as Flower calls it: messages, attendance, ledger, evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from torch import Tensor

from fedfair.fairness.group_counts import favourable_of
from fedfair.fairness.sklearn_metrics import further
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.clipping import ClipRule
from fedfair.mechanisms.noise import add_noise, server_share
from fedfair.mechanisms.randomness import source
from fedfair.moments.front import Front
from fedfair.node import exchanges
from fedfair.node.front_counts import HELD_OUT, send_front_counts
from fedfair.protocol.exchange import Exchange
from fedfair.protocol.messages import pack, unpacked
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task
from strategies.server.population import Population
from strategies.server.releases.evaluation import Evaluation, Rows
from strategies.server.releases.front import MeasuredFront, measured
from strategies.server.releases.private_figures import PrivateFigures
from strategies.server.releases.risk_meter import RiskMeter
from strategies.server.releases.secure_sum import SecureSum
from strategies.server.releases.threshold_search import ThresholdSearch
from strategies.server.replies.requests import Attendance, added, answers, ask, present, requests
from strategies.server.server_optimizer import WeightAverage
from strategies.server.strategy import Strategy
from strategies.server.training import Training


class Rounds(FlowerStrategy):
    """A Flower strategy for one run of a method; raises `ValueError` where its settings do not fit the population.

    Args:
        method: The method.
        progress: Called after every round with the number of this round, from 1, and that of all rounds.

    Attributes:
        method: The method, with weights and state.
        ledger: What was released, and what it cost.
        rows: What was measured.
        attendance: How many rounds each client answered.
        average: The average of the weights over rounds.
        search: The search for a threshold after the training.
        evaluation: Evaluations of the model by group.
        counted: The latest noisy counts, or None.
        front: Classifiers besides the model that follow from the same releases, with their figures; None for a method
            that makes none.

    Examples:
        >>> import torch
        >>> from fedfair import client_app
        >>> from simulations.engines.local import LocalGrid, quiet_flower
        >>> from strategies.dpsgd import Dpsgd
        >>> from strategies.dpsgd_f import DpsgdF
        >>> from strategies.server.replies.requests import population
        >>> grid, task = LocalGrid(client_app.app, nodes=1), Task(hidden=(4,))
        >>> rounds = Rounds(Dpsgd(task, Training(steps=2, accountant="rdp"), population(grid, task)))
        >>> weights = dict(task.build_model().named_parameters())
        >>> with quiet_flower():
        ...     done = rounds.start(grid, pack(weights), num_rounds=rounds.rounds)
        >>> list(rounds.chosen(done.arrays)) == list(weights), round(rounds.ledger.epsilon(), 2)
        (True, 4.1)

        The same without messages, for a method that counts first:

        >>> alone = Rounds(DpsgdF(task, Training(steps=1, accountant="rdp"), population(grid, task)))
        >>> plan = alone.begin(0, {name: value.detach() for name, value in weights.items()})
        >>> if alone.counts_first(plan):
        ...     plan = alone.counted_first(plan, torch.zeros(2, 10))
        >>> sums = {name: torch.zeros_like(value) for name, value in weights.items()}
        >>> alone.end(1, alone.method.decided(plan), sums, counts=None, clients=range(10))
        >>> round(alone.ledger.epsilon(), 2)
        3.37
    """

    def __init__(self, method: Strategy, progress: Callable[[int, int], None] = lambda done, rounds: None) -> None:
        self.method, self.progress = method, progress
        task, training, population, protects = method.task, method.training, method.population, method.protects
        self.search = ThresholdSearch(task, training, population, protects, method.key)
        self._risk = (RiskMeter(task, training, population, method.sync, method.exchange)
                      if training.risk_every else None)
        self.ledger = method.empty_ledger()
        favourable = training.favourable_class(population.labels)
        self._favourable = favourable_of(favourable, population.classes)
        self.rows = Rows(population.names, favourable, further(training.metrics, population.classes, self._favourable))
        private = training.figures == "private"
        figures = PrivateFigures(task, training, population, protects, method.key) if private else None
        self.evaluation = Evaluation(task, training, self.search, self.ledger, self.rows, figures)
        self.average = WeightAverage(training.average)
        self.attendance = Attendance(len(population.sizes))
        self.front: MeasuredFront | None = None
        self.counted: Tensor | None = None
        self._round: Round | None = None
        self._started: Gradients = {}  # the weights that the round starts from
        self._secure: SecureSum | None = None
        self._asked: list[Message] = []  # the requests whose replies come next

    @property
    def task(self) -> Task:
        """Data, model and seed of the run."""
        return self.method.task

    @property
    def training(self) -> Training:
        """The settings of the moment."""
        return self.method.training

    @property
    def population(self) -> Population:
        """Public numbers of records by client and group."""
        return self.method.population

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.method.rounds

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                        ) -> Iterable[Message]:
        """Ask for counts if the rule depends on them, then for gradient sums or local epochs.

        Args:
            server_round: Number of the round, from 1.
            arrays: Weights of the model by name.
            config: Not used.
            grid: The nodes.
        """
        method, weights = self.method, unpacked(arrays)
        plan = self.begin(server_round - 1, weights)
        arrays = arrays if self._started is weights else pack(self._started)
        if plan.local is not None:
            self._round = plan
            self._asked = requests(method.local_exchange or exchanges.send_local_epoch, grid, self.task,
                                   self.population, weights=arrays, round_=plan, **method.asked_besides())
            return self._asked
        if self.counts_first(plan):
            counted = self._ask(exchanges.send_counts, grid, weights=arrays, round_=plan)
            plan = self.counted_first(plan, self._added_counts(counted, plan))
        self._round = method.decided(plan)
        if self._risk is not None and self._round.step % self._risk.every == 0:
            self.ledger.expose("risk terms on the train part", "losses, gradients, Hessians by group, without noise")
            self.rows.add(server_round, "train", self._risk.measure(
                grid, arrays, self._round, method.divisor(), self.training.learning_rate))
        besides = method.ask_first(partial(self._sums_first, grid, arrays, self._round))
        if self.training.secure_aggregation:
            self._asked = self._masked_requests(grid, arrays, self._round, besides)
        else:
            self._asked = requests(method.next_exchange() or exchanges.send_gradient_sum, grid, self.task,
                                   self.population, weights=arrays, round_=self._round, **besides)
        return self._asked

    def aggregate_train(self, server_round: int, replies: Iterable[Message]
                        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up, add the server's noise, update the model, enter the release into the ledger, learn from the counts.

        Args:
            server_round: Number of the round, from 1.
            replies: Answers of the nodes, in any order.

        Returns:
            The new weights by name, and no metrics.

        Raises:
            fedfair.node.node.ClientError: If a node did not answer, failed, or sent a value that is not finite.
        """
        assert self._round is not None
        answered, plan, method = self._answers(replies), self._round, self.method
        sums = self._secure.total(answered) if self._secure else added(answered, "sums", method.like_sums())
        counts = None if plan.query is None else self._added_counts(answered, plan)
        self.end(server_round, plan, sums, counts, present(answered))
        return pack(method.descent.weights), None

    def begin(self, step: int, weights: Gradients) -> Round:
        """Let the method hold the weights that a round starts from, and return the round's plan.

        Args:
            step: Number of the round, from 0.
            weights: Weights after the last round, by name.
        """
        method = self.method
        method.step = step
        self._started = method.start(weights)
        method.descent.hold(self._started, method.training)
        return method.plan(step)

    def counts_first(self, plan: Round) -> bool:
        """Say whether the clip rule of a round follows from counts on its batch.

        Args:
            plan: The round, as `begin` gave it.
        """
        return plan.query is not None and self.method.counts_first

    def counted_first(self, plan: Round, counts: Tensor) -> Round:
        """Let the method learn from counts on a round's batch, and return the plan without its query.

        Args:
            plan: The round, as `begin` gave it.
            counts: Sum of the counts that nodes sent, with their noise.
        """
        self.method.take_counts(self._noisy_counts(counts, plan), self.method.expected_batch())
        return replace(plan, query=None)

    def end(self, server_round: int, plan: Round, sums: Gradients, counts: Tensor | None, clients: Sequence[int]
            ) -> None:
        """Add the server's noise to what nodes sent, change the model, charge the release, learn from the counts.

        Args:
            server_round: Number of the round, from 1.
            plan: The round, as it was decided.
            sums: Sum of what nodes sent, with their noise.
            counts: Sum of the counts that they sent with it; None if the round asks for none.
            clients: Numbers of the clients that answered.
        """
        method = self.method
        assert plan.rule is not None
        self.attendance.note(clients)
        self.rows.add_rule(server_round, plan.rule)
        if plan.local is None:
            method.answering = len(clients)
            method.update(self._with_server_noise(sums, plan))
        else:
            method.descent.become(method.averaged(sums, clients))
        if self.average.decay:
            self.average.take(method.descent.weights)
            if server_round == self.rounds:
                method.descent.become(self.average.weights)
        for event, steps, first in plan.charges(self.population.sizes):
            self.ledger.record(event, steps, first)
        if counts is not None:
            method.take_counts(self._noisy_counts(counts, plan), method.expected_batch(clients))
        self.progress(server_round, self.rounds)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                           ) -> Iterable[Message]:
        """Ask for counts by group at the end of every `eval_every` epochs and of the run.

        At the end they are of all parts, after the search for a threshold.

        Args:
            server_round: Number of the round, from 1, or 0 before the first.
            arrays: Weights of the model by name.
            config: Not used.
            grid: The nodes.
        """
        last, made = server_round >= self.rounds, self.method.made
        if made is not None and self.training.figures != "none":
            self.front = self._measured(grid, made)
            self.method.choose(self.front)
            arrays = self.chosen(arrays)
        self._asked = []
        if self.evaluation.figures is None:
            if last or self.evaluation.due(server_round, self.method.rounds_per_epoch):
                self._asked = self.evaluation.ask(server_round, arrays, grid, last)
        elif last:
            self.evaluation.release(server_round, arrays, grid, self.method.left_out())
        return self._asked

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Keep the metrics of every part and group, over the clients that answered, as `rows`.

        Args:
            server_round: Number of the round, from 1, or 0 before the first.
            replies: Answers of the nodes, in any order; none if nothing was asked.

        Returns:
            The test accuracies by group for Flower's log, or None.
        """
        replied = list(replies)
        return (self.evaluation.keep(server_round, self._answers(replied)) or None) if replied else None

    def summary(self) -> None:
        """Print nothing: the run prints a table of its own."""

    def chosen(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return the weights that the run ends with, given those of its last round.

        Args:
            arrays: Weights by name.
        """
        return pack(self.method.descent.weights) if self.method.made is not None else arrays

    def _sums_first(self, grid: Grid, weights: ArrayRecord, plan: Round, exchange: Exchange,
                    like: Mapping[str, Mapping[str, Tensor]], rule: ClipRule | None = None, **parts: Any
                    ) -> dict[str, Gradients]:
        """Return sums over a round's batch without noise, which a method asks for before its own sum."""
        replies = self._ask(exchange, grid, weights=weights, round_=replace(plan, rule=rule) if rule else plan, **parts)
        return {name: added(replies, name, tensors) for name, tensors in like.items()}

    def _masked_requests(self, grid: Grid, arrays: ArrayRecord, plan: Round, besides: Mapping[str, Any]
                         ) -> list[Message]:
        """Collect sums under masks, and return the requests that open their total."""
        self._secure = SecureSum(grid, self.task, self.training, self.population, plan, self.method.like_sums(),
                                 self.method.units)
        exchange = self.method.next_exchange()
        assert exchange is not None  # a method without one was refused at the start
        return self._secure.requests(exchange, arrays, **besides)

    def _ask(self, exchange: Exchange, grid: Grid, **parts: Any) -> list[Message]:
        """Send a request to every node, and return the replies, checked as `_answers` does."""
        return ask(exchange, grid, self.task, self.training, self.population, self.training.dropouts, **parts)

    def _answers(self, replies: Iterable[Message]) -> list[Message]:
        """Return the replies to the latest requests of the round.

        Raises `ClientError` if one cannot be an answer to them, or more clients are missing than `dropouts` allows.
        """
        return answers(replies, len(self.population.sizes), self.training.dropouts, self._asked,
                       self.population.holders, self.training.answer_timeout)

    def _added_counts(self, replies: list[Message], plan: Round) -> Tensor:
        """Add up the counts that nodes sent: in local epochs, those of nodes that hold records."""
        local = plan.local
        holding = [reply for reply in replies if local is None or any(map(local.sizes.__getitem__, present([reply])))]
        return added(holding, "counts", {"counts": self.method.like_counts()})["counts"]

    def _noisy_counts(self, counts: Tensor, plan: Round) -> Tensor:
        """Return counts with the server's share of the noise."""
        assert plan.count_noise_multiplier is not None
        share = server_share(plan.trust) if plan.local is None else 0.0
        draws = source(plan.key, "counts", 0, plan.step)
        self.counted = add_noise(plan.noise, {"counts": counts}, share * plan.count_noise_multiplier, draws)["counts"]
        return self.counted

    def _with_server_noise(self, sums: Gradients, plan: Round) -> Gradients:
        """Return the sums with the server's share of the noise."""
        share = server_share(plan.trust)
        if not share or not plan.noise_multiplier:
            return sums
        return add_noise(plan.noise, sums, plan.deviation(share), source(plan.key, "noise", 0, plan.step))

    def _measured(self, grid: Grid, made: Front) -> MeasuredFront:
        """Return a front with its figures on the held-out parts, private ones if the run's are."""
        if self.evaluation.figures is not None:
            return self.evaluation.release_front(grid, made)
        replies = self._ask(send_front_counts, grid, tensors={"front": {"weights": made.weights}},
                            splits=list(HELD_OUT))
        self.ledger.expose("figures of the front on held-out parts", "counts by group of decisions, without noise")
        return measured(made, replies, self.population, self._favourable)
