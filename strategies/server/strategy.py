"""A method is mathematics: what it clips by, counts and learns, how much noise it adds, and what each round charges.

It knows no messages. `strategies.server.rounds` carries it through rounds over nodes; a plain loop can do the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from fedfair.accounting.events import Preprocessed, Unit
from fedfair.gradients.layers import Gradients
from fedfair.gradients.padding_rows import padding_rows, without_rows
from fedfair.mechanisms.clipping import ClipRule
from fedfair.mechanisms.counting import CountQuery
from fedfair.models.optimizers import Optimizer, make_optimizer
from fedfair.protocol.round import LocalEpoch, LocalSgd, LocalTraining, Round
from fedfair.protocol.task import Task
from strategies.server.by_group import refuse_other_groups, refuse_tables
from strategies.server.calibration import Beside, Schedule, common_noise, count_noise, search_charge
from strategies.server.group_budget import GroupBudget, group_budget
from strategies.server.hooks import query_of, refuse_broken_hooks, rule_of
from strategies.server.noise_key import noise_key
from strategies.server.population import Population, refuse_claimed_sites, refuse_single_records
from strategies.server.server_optimizer import Descent
from strategies.server.training import Training

if TYPE_CHECKING:
    from fedfair.moments.front import Front
    from fedfair.protocol.exchange import Exchange
    from strategies.server.releases.front import MeasuredFront


@dataclass(frozen=True)
class NoisePlan:
    """How much noise a run adds, and what it charges each group: fixed before its first round.

    Attributes:
        multipliers: Noise multipliers by group, `[K]` (step mode), or by client (epoch mode).
        of_sum: Noise multiplier of one gradient sum in step mode, in units of the rule's sensitivity.
        of_counts: Noise multiplier of the counts of one batch, or None for a method that does not count.
        by_group: The multipliers that each group is charged, `[K]`, where they are not those of the sum; else None.

    Examples:
        >>> from strategies.dpsgd_f import DpsgdF
        >>> population = Population(("women", "men"), ((600, 400),), (60, 40), ("no", "yes"))
        >>> DpsgdF(Task(), Training(batch_size=100, noise_multiplier=2.0), population).noise
        NoisePlan(multipliers=(2.0, 2.0), of_sum=2.0, of_counts=20.0, by_group=None)
    """

    multipliers: tuple[float, ...]
    of_sum: float = 0.0
    of_counts: float | None = None
    by_group: tuple[float, ...] | None = None


class Ask(Protocol):
    """Asks all nodes for sums over the records of a round's batch, without noise."""

    def __call__(self, exchange: Exchange, like: Mapping[str, Mapping[str, Tensor]], rule: ClipRule | None = None,
                 **parts: Any) -> Mapping[str, Gradients]:
        """Return the sums over all nodes, by record and name.

        Args:
            exchange: What nodes are asked for.
            like: Tensors of the names, shapes and types of the sums, by record.
            rule: The rule that clips, if not the round's.
            **parts: What the request says besides: options, and `tensors` by record and name.
        """
        ...


class Strategy(ABC):
    """A method, for one run of one task over one population.

    It is a subclass that defines `rule` and, if it counts, `query`, `counts_first`, `learn` and `state`. Raises
    `ValueError` when settings or options do not fit the population.

    Args:
        task: Data, model and seed of the run.
        training: Settings of the training and of what follows it.
        population: Public numbers of records by client and group.
        preprocessing: What was released for private preprocessing of the task's data, or None.

    Attributes:
        modes: Modes that the method supports, of "step" and "epoch" (class attribute, as the next eleven).
        default_sync: Mode of a run whose settings name none.
        protects: What neighbouring data sets differ by: one "record", or one "participant" with all its records.
        exchange: What nodes are asked for when they train, except in local epochs; None for the clipped gradient sum.
        masked_exchange: The same sums under masks, for secure aggregation; None for a method that has none.
        needs: What it needs beyond a clip norm and noise, for `fedfair methods`; "" for nothing.
        settings: Settings that it cannot do without, for commands: they win over a preset's, and a person's over them.
        tables: Settings that it takes by group, as tables; without bounds by group it refuses any `group_epsilon`.
        counts_first: Whether the query is answered before the gradients are clipped; if not, with their sum.
        nominal: Why no proof supports the epsilon, whatever the options, or None.
        broadcasts: Whether clients are sent sums without noise.
        state: Names of the attributes that `learn` changes, which a checkpoint keeps.
        options: The method's own parameters, an instance of its `Options`.
        sync: Mode of the run.
        key: What batches and noise follow from, or None if they come from the operating system (`noise_key`).
        noise: How much noise the run adds.
        budget: The filter that keeps every group within `group_epsilon`, or None.
        descent: The weights, and the optimiser that changes them.
        step: Number of the round, from 0, that was planned last.
        answering: Number of clients whose sums are in the latest round.
        made: Classifiers besides the model that follow from the same releases; None for a method that makes none.
        taken: Which of these the model is.

    Examples:
        >>> from strategies.dpsgd_f import DpsgdF
        >>> population = Population(("women", "men"), ((600, 400),), (60, 40), ("no", "yes"))
        >>> method = DpsgdF(Task(), Training(steps=2, batch_size=100, noise_multiplier=2.0, delta=1e-5), population)
        >>> method.rounds, method.rates(), method.noise.of_counts, method.schedules()
        (2, (0.1, 0.1), 20.0, [Schedule(rate=0.1, steps=2), Schedule(rate=0.1, steps=2)])
        >>> method.rule()
        PerGroup(clip_norms=(0.5, 0.5))
        >>> plan = method.plan(step=0)
        >>> method.take_counts(torch.tensor([[30.0, 10.0], [20.0, 40.0]]), method.expected_batch())  # above, below
        >>> method.decided(plan).rule
        PerGroup(clip_norms=(1.25, 0.75))
        >>> DpsgdF.key_of(Task(), Training()) == DpsgdF.key_of(Task(), Training(clip_norm=1.0))
        False
    """

    class Options(BaseModel):
        """A method's own parameters: none, unless it defines some. Unknown ones are refused.

        Examples:
            >>> class Quantile(Strategy.Options):
            ...     quantile: float = 0.5
            >>> Quantile(quantile=0.7)
            Quantile(quantile=0.7)
        """

        model_config = ConfigDict(frozen=True, extra="forbid")

    modes: ClassVar[tuple[Literal["step", "epoch"], ...]] = ("step", "epoch")
    default_sync: ClassVar[Literal["step", "epoch"]] = "step"
    protects: ClassVar[Unit] = "record"
    exchange: ClassVar[Exchange | None] = None
    masked_exchange: ClassVar[Exchange | None] = None
    needs: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Any]] = {}
    tables: ClassVar[frozenset[str]] = frozenset({"group_epsilon"})
    counts_first: ClassVar[bool] = False
    nominal: ClassVar[str | None] = None
    broadcasts: ClassVar[bool] = False
    state: ClassVar[tuple[str, ...]] = ()
    made: Front | None = None
    taken: int = 0

    def __init__(self, task: Task, training: Training, population: Population, *,
                 preprocessing: Preprocessed | None = None) -> None:
        self.key = self.key_of(task, training)
        refuse_tables(training.tables, type(self).__name__, self.tables)
        refuse_other_groups(training.tables, population.names)
        training = training.sized(population.records).without_equal_tables()
        _refuse_misfit(task, training, population)
        self.task, self.training, self.population = task, training, population
        self.sharers = self.answering = len(population.sizes) - training.dropouts  # the fewest whose noise is in a sum
        self.options = self.Options(**training.options)
        self.sync = training.sync or self.default_sync
        self.preprocessing = preprocessing
        self.step = 0
        self.descent = Descent(self.optimizer)
        self.prepare()
        refuse_broken_hooks(self)
        self.noise = self.noise_plan()
        _refuse_insecure(self)
        self.budget = self._group_budget()

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

    def prepare(self) -> None:  # noqa: B027 - most methods have none
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

    def learn(self, counts: Tensor, expected_batch: float) -> None:  # noqa: B027 - most methods have none
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
            weight_decay=training.weight_decay, momentum=training.momentum, noise_multipliers=self.noise.multipliers,
            weights=self.client_weights(), sizes=self.population.by_client,
            bounds_fixed=self.has_fixed_bounds)

    @property
    def has_fixed_bounds(self) -> bool:
        """Whether each group has a bound of its own that no count can move, so that it is guaranteed in units of it."""
        return "clip_norm" in self.training.tables and not self.state

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

    def next_exchange(self) -> Exchange | None:
        """Return what nodes are asked for in the next round: the method's `exchange`, under masks if sums are secure.

        Override it for a method whose rounds ask for different sums.
        """
        return self.masked_exchange if self.training.secure_aggregation else self.exchange

    def asked_besides(self) -> Mapping[str, Any]:
        """Return what requests of the next round's exchange say beside weights and plan, by name.

        Override it for a method whose exchange takes options: numbers, texts or lists of them.
        """
        return {}

    def ask_first(self, ask: Ask) -> Mapping[str, Any]:
        """Return what `asked_besides` does, once nodes have been asked for other sums over the round's batch.

        Override it for a method whose sum depends on sums without noise, which then are sent to everybody.

        Args:
            ask: Asks all nodes for sums over the same batch, and returns them.
        """
        return self.asked_besides()

    def start(self, weights: Gradients) -> Gradients:
        """Return the weights that the next round starts from: those after the last.

        Override it for a method that changes them in between; it reads no record, and costs no privacy.

        Args:
            weights: Weights of the model by name.
        """
        return weights

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

    def update(self, noisy: Gradients) -> None:
        """Change the weights by the noisy sums of a round, in step mode: a step of the optimiser along their mean.

        Override it for a method that does something else with the sums; it is post-processing, and costs no privacy.

        Args:
            noisy: Sums over all nodes, with all of the round's noise.
        """
        mean = {name: value / self.divisor() for name, value in noisy.items()}
        self.descent.step(without_rows(mean, self._padding))

    @cached_property
    def _padding(self) -> dict[str, int]:
        """Rows of the model that are not trained, by the name of their parameter."""
        return padding_rows(self.task.build_model())

    def client_weights(self) -> tuple[float, ...]:
        """Return each client's share in the average of locally trained weights: its share of the records.

        Override it for a method that averages otherwise; the shares sum to 1.
        """
        return tuple(size / self.population.records for size in self.population.by_client)

    def noise_plan(self) -> NoisePlan:
        """Return how much noise the run adds: one multiplier, enough for every record.

        Override it for a method that adds no noise, or another amount for each group.
        """
        schedules = self.schedules()
        common = common_noise(schedules, self.training, self.beside)
        counts = None if self.query() is None else count_noise(self.training, common)
        return NoisePlan((common,) * len(schedules), common, counts)

    def sum_noise(self, rule: ClipRule) -> float:
        """Return the noise multiplier of one gradient sum in step mode, in units of the rule's sensitivity.

        Override it for a method whose noise does not follow the sensitivity of the rule.

        Args:
            rule: The clip rule of this batch.
        """
        return self.noise.of_sum

    def schedules(self) -> list[Schedule]:
        """Return what a record of each group (step mode) or client (epoch mode) goes through, for calibration."""
        if self.sync == "step" or self.protects == "participant":
            return [Schedule(rate, self.rounds) for rate in self.planned_rates() or self.rates()]
        epochs = [LocalEpoch.of(size, self.training.batch_size) for size in self.population.by_client]
        return [Schedule(epoch.rate, self.rounds * epoch.steps) for epoch in epochs]

    @property
    def beside(self) -> Beside:
        """What a record is charged beside the noise of its schedule."""
        return Beside(self.query() is not None, search_charge(self.training, self.protects), self.preprocessing)

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

    def choose(self, front: MeasuredFront) -> None:  # noqa: B027 - most methods have none
        """Take one of the classifiers that the method `made`, by their figures; it keeps its own by default.

        Override it for a method that chooses among several.

        Args:
            front: The classifiers, with their figures.
        """

    def take_counts(self, counts: Tensor, expected_batch: float) -> None:
        """Let the method learn; raise `ValueError` if it changes an attribute that its `state` does not declare.

        Args:
            counts: Noisy counts in the shape of the query's.
            expected_batch: Public expected number of records (or participants) that were counted.
        """
        before = dict(vars(self))
        self.learn(counts, expected_batch)
        for name, value in vars(self).items():
            if name not in self.state and value is not before.get(name, self):
                raise ValueError(f"{type(self).__name__}.learn changes {name!r}, which `state` does not declare, so "
                                 f"that a run would lose it when it goes on from a checkpoint: add {name!r} to `state`")

    # What a round is, and what it charges.

    def plan(self, step: int) -> Round:
        """Return a round with the rule and the charge that are known before its counts.

        Args:
            step: Number of the round, from 0.
        """
        training, rule, local = self.training, rule_of(self), self.local_training()
        self.step, noise = step, self.sum_noise(rule) if local is None else self.noise.multipliers[0]
        return Round(
            key=self.key, step=step, rates=self.rates(), noise_multiplier=noise,
            count_noise_multiplier=self.noise.of_counts, trust=training.trust, clients=self.sharers, rule=rule,
            planned_multipliers=self._planned(noise), query=query_of(self), local=local,
            local_sgd=self.local_sgd(), noise=training.noise, planned_rates=self.planned_rates(),
            label=token_hex(16) if self.key is None else "")

    def decided(self, plan: Round) -> Round:
        """Return the plan of a gradient sum with the rule that clips it, its noise, and what both charge.

        Args:
            plan: The round as `plan` gave it; if `counts_first`, its counts have been learned.
        """
        rule = rule_of(self)
        noise = self.sum_noise(rule)
        if self.budget is not None:
            rule, noise = self.budget.within(rule, noise)
        planned = self._planned(noise)
        certain = planned if self.budget is None else tuple(map(max, planned, self.budget.least))
        return replace(plan, rule=rule, noise_multiplier=noise, planned_multipliers=planned,
                       spent_multipliers=None if self.budget else self.noise.by_group,
                       certain_multipliers=certain if self.counts_first else None)

    def _planned(self, carried: float) -> tuple[float, ...]:
        """Return by group, `[K]`, the noise multiplier that was fixed in advance, in units of the largest contribution.

        `carried` is what the sum carries, in units of the rule's sensitivity: more than planned if a budget lowered it.
        """
        return self.noise.by_group or (min(carried, self.noise.multipliers[0]),) * len(self.population.names)

    def _group_budget(self) -> GroupBudget | None:
        """Return the filter that keeps every group within `group_epsilon`, or None without that setting."""
        if self.training.group_epsilon is None:
            return None
        if self.preprocessing is not None:
            raise ValueError("group_epsilon is set, but preprocessing is private, and its release is not in that "
                             "budget: give public ranges and categories, or leave group_epsilon out")
        return group_budget(self.training, self.population.names, self.sync, self.rule(), min(self.noise.multipliers),
                            self.rates(), self.rounds, self.noise.of_counts, self.counts_first)


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
    if not strategy.noise.multipliers[0]:
        raise ValueError("secure_aggregation is true, but noise_multiplier is 0: the sum is in whole steps of its "
                         "noise, so take noise, or leave secure_aggregation out")


Options = Strategy.Options
"""The base of a method's own parameters, which refuses unknown ones."""
