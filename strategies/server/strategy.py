"""The round that all strategies share; each strategy adds its own mathematics.

A strategy makes four small choices: a count query, a clip rule, how updates are aggregated, and what it learns from the
noisy counts. The base owns everything else: messages, noise, division by the public batch size, the optimiser, the
ledger and evaluation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Any, ClassVar, Literal

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from fedfair.accounting import Ledger, Unit
from fedfair.accounting.events import Preprocessed
from fedfair.fairness.group_counts import favourable_of
from fedfair.fairness.sklearn_metrics import further
from fedfair.mechanisms.clipping import ClipRule, sensitivity
from fedfair.mechanisms.counting import CountQuery
from fedfair.mechanisms.noise import add_noise, server_share
from fedfair.mechanisms.randomness import source
from fedfair.models.optimizers import Optimizer, make_optimizer
from fedfair.node import exchanges
from fedfair.protocol.exchange import Exchange
from fedfair.protocol.messages import pack, unpacked
from fedfair.protocol.round import LocalEpoch, LocalSgd, LocalTraining, Round
from fedfair.protocol.task import Task
from strategies.server.calibration import Beside, Schedule, common_noise, count_noise
from strategies.server.group_budget import GroupBudget, group_budget
from strategies.server.hooks import query_of, refuse_broken_hooks, rule_of
from strategies.server.noise_key import noise_key
from strategies.server.population import Population, refuse_claimed_sites, refuse_single_records
from strategies.server.releases.evaluation import Evaluation, Rows
from strategies.server.releases.front import MeasuredFront
from strategies.server.releases.private_figures import PrivateFigures
from strategies.server.releases.risk_meter import RiskMeter
from strategies.server.releases.secure_sum import SecureSum
from strategies.server.releases.threshold_search import ThresholdSearch
from strategies.server.replies.requests import Attendance, added, answers, ask, numbering, present, requests
from strategies.server.server_optimizer import Descent, WeightAverage
from strategies.server.training import Training

SEEDED = ("batches and noise come from a seed: anyone who has it, or sees it run again on other records, can take the "
          'noise away (randomness = "system" draws them from the operating system)')
"""Why the guarantee of a seeded run is "simulated", in a ledger."""


class Strategy(FlowerStrategy):
    """A Flower strategy for one run of one task over one population.

    A method is a subclass that defines `rule` and, if it counts, `query`, `counts_first`, `learn` and `state`. Raises
    `ValueError` when settings or options do not fit the population.

    Args:
        task: Data, model and seed of the run.
        training: Settings of the training and of what follows it.
        population: Public numbers of records by client and group.
        progress: Called after every round with the number of this round, from 1, and that of all rounds.
        preprocessing: What was released for private preprocessing of the task's data, or None.

    Attributes:
        modes: Modes that the method supports, of "step" and "epoch" (class attribute, as the next ten).
        default_sync: Mode of a run whose settings name none.
        protects: What neighbouring data sets differ by: one "record", or one "participant" with all its records.
        exchange: What nodes are asked for when they train, except in local epochs.
        masked_exchange: The same sums under masks, for secure aggregation; None for a method that has none.
        needs: What it needs beyond a clip norm and noise, for `fedfair methods`; "" for nothing.
        settings: Settings that it cannot do without, for commands: they win over a preset's, and a person's over them.
        counts_first: Whether the query is answered before the gradients are clipped; if not, with their sum.
        nominal: Why no proof supports the epsilon, whatever the options, or None.
        broadcasts: Whether clients are sent sums without noise.
        state: Names of the attributes that `learn` changes, which a checkpoint keeps.
        options: The method's own parameters, an instance of its `Options`.
        sync: Mode of the run.
        key: What batches and noise follow from, or None if they come from the operating system (`noise_key`).
        noise: Noise multipliers by group, `[K]` (step mode), or by client (epoch mode), as `noise_multipliers` gave.
        count_noise: Noise multiplier of the counts of one batch, or None for a method without a query.
        ledger: What was released, and what it cost.
        attendance: How many rounds each client answered.
        counted: The latest noisy counts, or None.
        rows: What was measured.
        front: Classifiers besides the model that follow from the same releases, with their figures; None for a method
            that makes none.
    """

    class Options(BaseModel):
        """A method's own parameters: none, unless it defines some. Unknown ones are refused."""

        model_config = ConfigDict(frozen=True, extra="forbid")

    modes: ClassVar[tuple[Literal["step", "epoch"], ...]] = ("step", "epoch")
    default_sync: ClassVar[Literal["step", "epoch"]] = "step"
    protects: ClassVar[Unit] = "record"
    exchange: ClassVar[Exchange] = exchanges.send_gradient_sum
    masked_exchange: ClassVar[Exchange | None] = None
    needs: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Any]] = {}
    counts_first: ClassVar[bool] = False
    nominal: ClassVar[str | None] = None
    broadcasts: ClassVar[bool] = False
    state: ClassVar[tuple[str, ...]] = ()
    front: MeasuredFront | None = None

    def __init__(self, task: Task, training: Training, population: Population,
                 progress: Callable[[int, int], None] = lambda done, rounds: None, *,
                 preprocessing: Preprocessed | None = None) -> None:
        self.key = self.key_of(task, training)
        training = training.sized(population.records)
        _refuse_misfit(task, training, population)
        self.task, self.training, self.population, self.progress = task, training, population, progress
        self.sharers = len(population.sizes) - training.dropouts  # the fewest clients whose noise is in a sum
        self.options = self.Options(**training.options)
        self.sync = training.sync or self.default_sync
        self.search = ThresholdSearch(task, training, population, self.protects, self.key)
        self._risk = (RiskMeter(task, training, population, self.sync, self.exchange)
                      if training.risk_every else None)
        self.preprocessing = preprocessing
        self.prepare()
        refuse_broken_hooks(self)
        self.noise = self.noise_multipliers()
        _refuse_insecure(self)
        self.count_noise = count_noise(training, self.noise[0]) if self.query() is not None else None
        self.budget = self._group_budget()
        self.ledger = self._empty_ledger()
        favourable = training.favourable_class(population.labels)
        named = favourable_of(favourable, population.classes)
        self.rows = Rows(population.names, favourable, further(training.metrics, population.classes, named))
        figures = (PrivateFigures(task, training, population, self.protects, self.key)
                   if training.figures == "private" else None)
        self.evaluation = Evaluation(task, training, self.search, self.ledger, self.rows, figures)
        self.descent = Descent(self.optimizer)
        self.average = WeightAverage(training.average)
        self.attendance = Attendance(len(population.sizes))
        self.counted: Tensor | None = None
        self._round: Round | None = None
        self._secure: SecureSum | None = None
        self._asked: list[Message] = []  # the requests whose replies come next

    @classmethod
    def key_of(cls, task: Task, training: Training) -> str | None:
        """Return the key that batches and noise of a run follow from, or None if the operating system draws them.

        Args:
            task: Data, model and seed of the run.
            training: Settings of the training, with the method's own options.
        """
        options = cls.Options(**training.options)
        return noise_key(cls, training.sync or cls.default_sync, options, task, training)

    # What a method is.

    def prepare(self) -> None:
        """Check the options against the population, and set the attributes that `state` names to their first values.

        Override it for a method with options to check or with state, which must be plain values or tensors. Raise
        `ValueError` for what does not fit.
        """

    @abstractmethod
    def rule(self) -> ClipRule:
        """Return the clip rule of the next batch.

        Every method defines it. A rule may depend on options and state, never on records.
        """

    def query(self) -> CountQuery | None:
        """Return the counts that the method needs of every batch, or None.

        Override it for a method that counts, together with `learn`.
        """
        return None

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Change the attributes that `state` names by noisy counts; this is post-processing and costs no privacy.

        Override it for a method that counts. In step mode with `counts_first` it runs before the batch's gradients are
        clipped, otherwise after.

        Args:
            counts: Noisy counts in the shape of the query's; any may be negative.
            expected_batch: Public expected number of records (or participants) that were counted.
        """

    # What most methods have in common, and some change.

    def unproved(self) -> str | None:
        """Return why no proof supports the epsilon of this run, or None.

        Override it for a method whose guarantee depends on options; otherwise `nominal` is enough.
        """
        return self.nominal

    def rates(self) -> tuple[float, ...]:
        """Return the sampling rate of each group's records in step mode, `[K]`.

        Override it for a method that samples groups, or participants, at other rates than b / N.
        """
        return (self.training.batch_size / self.population.records,) * len(self.population.names)

    def planned_rates(self) -> tuple[float, ...] | None:
        """Return the most that each group's sampling rate can become, `[K]`; None if `rates` never change.

        Override it for a method whose rates follow noisy counts: the guarantee is for these.
        """
        return None

    def expected_batch(self, clients: Sequence[int] | None = None) -> float:
        """Return the public expected number of records (or participants) in one batch that is counted.

        Override it for a method that samples otherwise.

        Args:
            clients: Numbers of the clients whose local epochs are counted; None for all clients.
        """
        if self.sync == "step":
            return self.training.batch_size
        sizes = self.population.by_client
        return sum(min(self.training.batch_size, sizes[client]) for client in clients or range(len(sizes)))

    def divisor(self) -> float:
        """Return what a sum of gradients or updates is divided by: a public number, never the realised batch size.

        Override it for a method that does not take the mean over the expected batch.
        """
        return self.expected_batch()

    def local_training(self) -> LocalTraining | None:
        """Return how clients train privately by themselves before models are averaged; None in step mode.

        Override it for a method that trains otherwise in epoch mode.
        """
        if self.sync == "step":
            return None
        training = self.training
        return LocalTraining(
            batch_size=training.batch_size, optimizer=training.optimizer, learning_rate=training.learning_rate,
            weight_decay=training.weight_decay, momentum=training.momentum, noise_multipliers=self.noise,
            weights=self.client_weights(), sizes=self.population.by_client)

    def local_sgd(self) -> LocalSgd | None:
        """Return how participants train before their whole updates are clipped, or None.

        Override it for a method that clips updates rather than gradients.
        """
        return None

    def optimizer(self, parameters: dict[str, nn.Parameter]) -> Optimizer:
        """Return what steps along the noisy mean, at the server.

        Override it for a method with an optimiser other than that of the settings.

        Args:
            parameters: Parameters of the model by name.
        """
        training = self.training
        return make_optimizer(training.optimizer, parameters, training.learning_rate, training.weight_decay,
                              training.momentum)

    def next_exchange(self) -> Exchange:
        """Return what nodes are asked for in the next round: the method's `exchange`, under masks if sums are secure.

        Override it for a method whose rounds ask for different sums.
        """
        if not self.training.secure_aggregation:
            return self.exchange
        assert self.masked_exchange is not None  # a method without one was refused at the start
        return self.masked_exchange

    def asked_besides(self) -> Mapping[str, Any]:
        """Return what requests of the next round's exchange say beside weights and plan, by name.

        Override it for a method whose exchange takes options: numbers, texts or lists of them.
        """
        return {}

    def like_sums(self) -> Mapping[str, Tensor]:
        """Return tensors of the names, shapes and types of the sums that nodes send: those of the weights.

        Override it for a method that adds up something else.
        """
        return self.descent.weights

    def like_counts(self) -> Tensor:
        """Return counts of the shape and type that nodes send: those of a batch without records.

        Override it for a method whose query does not count gradient norms.
        """
        query = self.query()
        assert query is not None
        none = torch.empty(0, dtype=self.task.torch_dtype)
        return query.counts(none, torch.empty(0, dtype=torch.long), len(self.population.names))

    def update(self, noisy: dict[str, Tensor]) -> None:
        """Change the weights by the noisy sums of a round, in step mode: a step of the optimiser along their mean.

        Override it for a method that does something else with the sums; it is post-processing, and costs no privacy.

        Args:
            noisy: Sums over all nodes, with all of the round's noise.
        """
        self.descent.step({name: value / self.divisor() for name, value in noisy.items()})

    def client_weights(self) -> tuple[float, ...]:
        """Return each client's share in the average of locally trained weights: its share of the records.

        Override it for a method that averages otherwise; the shares sum to 1.
        """
        return tuple(size / self.population.records for size in self.population.by_client)

    def noise_multipliers(self) -> tuple[float, ...]:
        """Return the noise multiplier by group (step mode) or client (epoch mode): one value, enough for all.

        Override it for a method that adds no noise, or another amount for each group.
        """
        schedules = self.schedules()
        return (common_noise(schedules, self.training, self.beside),) * len(schedules)

    def release_noise(self, rule: ClipRule) -> float:
        """Return the noise multiplier of one gradient sum in step mode, in units of the rule's sensitivity.

        Override it for a method whose noise does not follow the sensitivity of the rule.

        Args:
            rule: The clip rule of this batch.
        """
        return self.noise[0]

    def planned_multipliers(self, noise: float) -> tuple[float, ...]:
        """Return by group, `[K]`, the noise multiplier that was fixed in advance, in units of the largest contribution.

        Override it for a method that fixes another noise for each group in advance.

        Args:
            noise: What the sum carries, in units of the rule's sensitivity: more than planned if a budget lowered it.
        """
        return (min(noise, self.noise[0]),) * len(self.population.names)

    def spent_multipliers(self) -> tuple[float, ...] | None:
        """Return by group, `[K]`, the noise multiplier to charge, or None for all of the noise that the sum carries.

        It is in units of what a record of the group can add. Override it for a method that charges less noise.
        """
        return None

    def schedules(self) -> list[Schedule]:
        """Return what a record of each group (step mode) or client (epoch mode) goes through, for calibration.

        Override it for a method that protects something else than records.
        """
        if self.sync == "step":
            return [Schedule(rate, self.rounds) for rate in self.planned_rates() or self.rates()]
        epochs = [LocalEpoch.of(size, self.training.batch_size) for size in self.population.by_client]
        return [Schedule(epoch.rate, self.rounds * epoch.steps) for epoch in epochs]

    @property
    def beside(self) -> Beside:
        """What a record is charged beside the noise of its schedule."""
        return Beside(self.query() is not None, self.search.charged, self.preprocessing)

    @property
    def rounds(self) -> int:
        """The number of rounds: int(epochs N / b) steps, or one local epoch for each epoch."""
        training = self.training
        if training.steps is not None:
            return training.steps
        return int(round(training.epochs * self.rounds_per_epoch, 6))  # 30 · (49 / 3) is a rounding less than 490

    @property
    def rounds_per_epoch(self) -> float:
        """Rounds in which every record is met once on average."""
        return self.population.records / self.training.batch_size if self.sync == "step" else 1

    # The round, as Flower calls it.

    def plan(self, step: int) -> Round:
        """Return a round with the rule and the charge that are known before its counts.

        Args:
            step: Number of the round, from 0.
        """
        training, rule, local = self.training, rule_of(self), self.local_training()
        noise = self.release_noise(rule) if local is None else self.noise[0]
        return Round(
            key=self.key, step=step, rates=self.rates(), noise_multiplier=noise,
            count_noise_multiplier=self.count_noise, trust=training.trust, clients=self.sharers, rule=rule,
            planned_multipliers=self.planned_multipliers(noise), query=query_of(self), local=local,
            local_sgd=self.local_sgd(), noise=training.noise, planned_rates=self.planned_rates(),
            label=token_hex(16) if self.key is None else "")

    def decided(self, plan: Round) -> Round:
        """Return the plan of a gradient sum with the rule that clips it, its noise, and what both charge.

        Args:
            plan: The round as `plan` gave it; if `counts_first`, its counts have been learned.
        """
        rule = rule_of(self)
        noise = self.release_noise(rule)
        if self.budget is not None:
            rule, noise = self.budget.within(rule, noise)
        planned = self.planned_multipliers(noise)
        certain = planned if self.budget is None else tuple(map(max, planned, self.budget.least))
        return replace(plan, rule=rule, noise_multiplier=noise, planned_multipliers=planned,
                       spent_multipliers=self.spent_multipliers(),
                       certain_multipliers=certain if self.counts_first else None)

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                        ) -> Iterable[Message]:
        """Ask for counts if the rule depends on them, then for gradient sums or local epochs.

        Args:
            server_round: Number of the round, from 1.
            arrays: Weights of the model by name.
            config: Not used.
            grid: The nodes.
        """
        self.descent.hold(unpacked(arrays), self.training)
        plan = self.plan(server_round - 1)
        if plan.local is not None:
            self._round = plan
            self._asked = self._requests(exchanges.send_local_epoch, grid, weights=arrays, round_=plan)
            return self._asked
        if plan.query is not None and self.counts_first:
            counted = self._ask(exchanges.send_counts, grid, weights=arrays, round_=plan)
            self._learn(self._counts(counted, plan), self.expected_batch())
            plan = replace(plan, query=None)
        self._round = self.decided(plan)
        if self._risk is not None and self._round.step % self._risk.every == 0:
            self.ledger.expose("risk terms on the train part", "losses, gradients, Hessians by group, without noise")
            self.rows.add(server_round, "train", self._risk.measure(
                grid, arrays, self._round, self.divisor(), self.training.learning_rate))
        if self.training.secure_aggregation:
            self._asked = self._masked_requests(grid, arrays, self._round)
            return self._asked
        self._asked = self._requests(self.next_exchange(), grid, weights=arrays, round_=self._round,
                                     **self.asked_besides())
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
        assert self._round.rule is not None
        answered, plan = self._answers(replies), self._round
        self.attendance.note(present(answered))
        self.rows.add_rule(server_round, self._round.rule)
        sums = self._secure.total(answered) if self._secure else added(answered, "sums", self.like_sums())
        if plan.local is None:
            self.update(self._with_server_noise(sums, plan, self._round.rule))
        else:
            self.descent.become(self._averaged(sums, present(answered)))
        if self.average.decay:
            self.average.take(self.descent.weights)
            if server_round == self.rounds:
                self.descent.become(self.average.weights)
        for event, steps, first in plan.charges(self.population.sizes):
            self.ledger.record(event, steps, first)
        if plan.query is not None:
            self._learn(self._counts(answered, plan), self.expected_batch(present(answered)))
        self.progress(server_round, self.rounds)
        return pack(self.descent.weights), None

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
        last = server_round >= self.rounds
        if self.evaluation.figures is not None:
            self._asked = []
            if last:
                self.evaluation.release(server_round, arrays, grid)
            return []
        due = last or self.evaluation.due(server_round, self.rounds_per_epoch)
        self._asked = self.evaluation.ask(server_round, arrays, grid, last) if due else []
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
        answered = self._answers(replied) if replied else []
        return (self.evaluation.keep(server_round, answered) or None) if answered else None

    def summary(self) -> None:
        """Print nothing: the run prints a table of its own."""

    def chosen(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return the weights that the run ends with, given those of its last round.

        Override it for a method that chooses among several models once the training has ended.

        Args:
            arrays: Weights by name.
        """
        return arrays

    def _group_budget(self) -> GroupBudget | None:
        """Return the filter that keeps every group within `group_epsilon`, or None without that setting."""
        if self.training.group_epsilon is None:
            return None
        if self.preprocessing is not None:
            raise ValueError("group_epsilon is set, but preprocessing is private, and its release is not in that "
                             "budget: give public ranges and categories, or leave group_epsilon out")
        return group_budget(self.training, self.sync, self.rule(), min(self.noise), self.rates(), self.rounds,
                            self.count_noise, self.counts_first)

    def _empty_ledger(self) -> Ledger:
        """Return the ledger of a run that has released nothing but what the server knows from the start."""
        training = self.training
        ledger = Ledger(self.population.names, training.delta, training.trust, self.sharers, training.accountant,
                        "; ".join(filter(None, (self.unproved(), self.task.learned_from_records()))) or None,
                        self.protects,
                        broadcasts=self.broadcasts or self._risk is not None,  # which sends the batch's gradient
                        secure_aggregation=training.secure_aggregation,
                        public=self.task.public(self.protects), budget=self.budget.filter if self.budget else None,
                        simulated=None if self.key is None else SEEDED,
                        size=self.population.records if self.protects == "record" else len(self.population.sizes),
                        preprocessing=self.preprocessing)
        if self.protects == "participant":
            ledger.expose("numbers of records of each participant by group", "the server receives them without noise")
        return ledger

    def _masked_requests(self, grid: Grid, arrays: ArrayRecord, plan: Round) -> list[Message]:
        """Collect sums under masks, and return the requests that open their total."""
        units = self.population.by_client if self.protects == "record" else (1,) * len(self.population.sizes)
        self._secure = SecureSum(grid, self.task, self.training, self.population, plan, self.like_sums(), units)
        return self._secure.requests(self.next_exchange(), arrays, **self.asked_besides())

    def _requests(self, exchange: Exchange, grid: Grid, **parts: object) -> list[Message]:
        """Return a request to every node."""
        return numbering(requests(exchange, grid, self.task, **parts), self.population, self.task)

    def _ask(self, exchange: Exchange, grid: Grid, **parts: Any) -> list[Message]:
        """Send a request to every node, and return the replies, checked as `_answers` does."""
        return ask(exchange, grid, self.task, self.training, self.population, self.training.dropouts, **parts)

    def _answers(self, replies: Iterable[Message]) -> list[Message]:
        """Return the replies to the latest requests of the round.

        Raises `ClientError` if one cannot be an answer to them, or more clients are missing than `dropouts` allows.
        """
        return answers(replies, len(self.population.sizes), self.training.dropouts, self._asked,
                       self.population.holders, self.training.answer_timeout)

    def _averaged(self, sums: dict[str, Tensor], clients: list[int]) -> dict[str, Tensor]:
        """Return the average of the weights over the clients that answered."""
        if len(clients) == len(self.population.sizes):
            return sums
        share = sum(self.client_weights()[client] for client in clients)
        return {name: value / share for name, value in sums.items()}

    def _counts(self, replies: list[Message], plan: Round) -> Tensor:
        """Add up the clients' counts, with the server's share of the noise."""
        assert plan.count_noise_multiplier is not None
        share = server_share(plan.trust) if plan.local is None else 0.0
        draws = source(plan.key, "counts", 0, plan.step)
        counts = added(self._counting(replies, plan), "counts", {"counts": self.like_counts()})
        self.counted = add_noise(plan.noise, counts, share * plan.count_noise_multiplier, draws)["counts"]
        return self.counted

    def _counting(self, replies: list[Message], plan: Round) -> list[Message]:
        """Return the replies that must hold counts: in local epochs, those of nodes that hold records."""
        if plan.local is None:
            return replies
        return [reply for reply in replies if any(plan.local.sizes[client] for client in present([reply]))]

    def _learn(self, counts: Tensor, expected_batch: float) -> None:
        """Let the method learn; raise `ValueError` if it changes an attribute that its `state` does not declare."""
        before = dict(vars(self))
        self.learn(counts, expected_batch)
        for name, value in vars(self).items():
            if name not in self.state and value is not before.get(name, self):
                raise ValueError(f"{type(self).__name__}.learn changes {name!r}, which `state` does not declare, so "
                                 f"that a run would lose it when it goes on from a checkpoint: add {name!r} to `state`")

    def _with_server_noise(self, sums: dict[str, Tensor], plan: Round, rule: ClipRule) -> dict[str, Tensor]:
        """Return the sums with the server's share of the noise."""
        share = server_share(plan.trust)
        if not share or not plan.noise_multiplier:
            return sums
        deviation = share * plan.noise_multiplier * sensitivity(rule, len(plan.rates))
        return add_noise(plan.noise, sums, deviation, source(plan.key, "noise", 0, plan.step))


def _refuse_misfit(task: Task, training: Training, population: Population) -> None:
    """Raise `ValueError` for a batch size, a noise or a number of dropouts that no method can run with.

    Also for clients whose public numbers would reveal a record.
    """
    refuse_single_records(population, training.trust, task.round_sizes)
    refuse_claimed_sites(population, task, training.trust)
    if training.batch_size > population.records:
        raise ValueError(f"batch_size is {training.batch_size}, but there are only {population.records} training "
                         "records: take at most that many")
    if training.noise == "discrete" and task.dtype != "float64":
        raise ValueError(f'noise is "discrete", but dtype is {task.dtype!r}: sums are only exact enough for it in '
                         "float64")
    if len(population.sizes) - training.dropouts < 1:
        raise ValueError(f"dropouts is {training.dropouts}, but there are only {len(population.sizes)} clients: a "
                         "round needs at least one")


def _refuse_insecure(strategy: Strategy) -> None:
    """Raise `ValueError` where secure aggregation is asked for, but the method or its noise does not fit it."""
    if not strategy.training.secure_aggregation:
        return
    if strategy.masked_exchange is None:
        raise ValueError("secure_aggregation is true, but this strategy has no sum for it: take moments or "
                         "moments-of-participants, or leave secure_aggregation out")
    if not strategy.noise[0]:
        raise ValueError("secure_aggregation is true, but noise_multiplier is 0: the sum is in whole steps of its "
                         "noise, so take noise, or leave secure_aggregation out")


Options = Strategy.Options
"""The base of a method's own parameters, which refuses unknown ones."""
