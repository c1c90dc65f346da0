"""A method is mathematics: what it clips by, counts and learns, how much noise it adds, and what each round charges.

It knows no messages. `strategies.server.rounds` carries it through rounds over nodes; a plain loop can do the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedfair.accounting import Ledger
from fedfair.accounting.events import Preprocessed
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.noise import Trust, client_share, most_records, no_room, server_share
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task
from strategies.server.by_group import refuse_other_groups, refuse_tables
from strategies.server.group_budget import GroupBudget, group_budget
from strategies.server.hooks import query_of, refuse_broken_hooks, rule_of
from strategies.server.method import Method
from strategies.server.noise_key import noise_key
from strategies.server.population import Population, refuse_claimed_sites, refuse_single_records
from strategies.server.server_optimizer import Descent
from strategies.server.training import Training

if TYPE_CHECKING:
    from fedfair.moments.front import Front
    from fedfair.moments.leave_one_out import LeftOut


SEEDED = ("batches and noise come from a seed: anyone who has it, or sees it run again on other records, can take the "
          'noise away (randomness = "system" draws them from the operating system)')
"""Why the guarantee of a seeded run is "simulated", in a ledger."""

_DEVIATIONS = 10  # of the size of a batch, by which none is larger


class Strategy(Method):
    """A method, for one run of one task over one population.

    It is a subclass that defines `rule` and, if it counts, `query`, `counts_first`, `learn` and `state`. Raises
    `ValueError` when settings or options do not fit the population.

    Args:
        task: Data, model and seed of the run.
        training: Settings of the training and of what follows it.
        population: Public numbers of records by client and group.
        preprocessing: What was released for private preprocessing of the task's data, or None.

    Attributes:
        options: The method's own parameters, an instance of its `Options`.
        sync: Mode of the run.
        key: What batches and noise follow from, or None if they come from the operating system (`noise_key`).
        noise: How much noise the run adds.
        factor: What that is in units of the noise that was planned before the first round: 1, unless rounds were lost.
        budget: The filter that keeps every group within `group_epsilon`, or None.
        descent: The weights, and the optimiser that changes them.
        step: Number of the round, from 0, that was planned last.
        answering: Number of clients whose sums are in the latest round.
        made: Classifiers besides the model that follow from the same releases; None for a method that makes none.
        taken: Which of these the model is.

    Examples:
        >>> import torch
        >>> from strategies.dpsgd_f import DpsgdF
        >>> population = Population(("women", "men"), ((600, 400),), (60, 40), ("no", "yes"))
        >>> method = DpsgdF(Task(), Training(steps=2, batch_size=100, noise_multiplier=2.0, delta=1e-5), population)
        >>> method.rounds, method.rates(), method.noise.of_counts, method.schedules()
        (2, (0.1, 0.1), 20.0, [Schedule(rate=0.1, steps=2, bins=None), Schedule(rate=0.1, steps=2, bins=None)])
        >>> method.rule()
        PerGroup(clip_norms=(0.5, 0.5))
        >>> plan = method.plan(step=0)
        >>> method.take_counts(torch.tensor([[30.0, 10.0], [20.0, 40.0]]), method.expected_batch())  # above, below
        >>> method.decided(plan).rule
        PerGroup(clip_norms=(1.25, 0.75))
        >>> ledger = method.empty_ledger()
        >>> for event, steps, first in method.decided(plan).charges(population.sizes):
        ...     ledger.record(event, steps, first)
        >>> round(ledger.epsilon(), 2)
        0.37
        >>> method.take_noise(1.5)  # since a round was lost, and is charged
        >>> method.noise.of_sum, method.plan(step=1).noise_multiplier
        (3.0, 3.0)
        >>> method.averaged({"bias": torch.ones(2)}, clients=[0]), method.units, method.left_out()
        ({'bias': tensor([1., 1.])}, (1000,), None)
        >>> DpsgdF.key_of(Task(), Training()) == DpsgdF.key_of(Task(), Training(clip_norm=1.0))
        False
    """

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
        self._drawn = -1, ""  # the latest epoch of balls in bins, and its label
        self.descent = Descent(self.optimizer)
        self.prepare()
        _refuse_bins(self)
        _refuse_no_local_steps(self)
        refuse_broken_hooks(self)
        self._planned_noise = self.noise_plan()
        self.take_noise(1.0)
        _refuse_insecure(self)
        _refuse_large(self)
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

    def take_noise(self, factor: float) -> None:
        """Add so many times the planned noise from the next round on.

        Args:
            factor: At least 1.
        """
        self.factor, self.noise = factor, self._planned_noise.times(factor)

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
            label=self._label(step), bins=self.steps_of_epoch)

    def _label(self, step: int) -> str:
        """Return the name of what the operating system draws for a round: its batch, or the bins of its epoch."""
        if self.key is not None:
            return ""
        if self.steps_of_epoch is None:
            return token_hex(16)
        if self._drawn[0] != step // self.steps_of_epoch:
            self._drawn = step // self.steps_of_epoch, token_hex(16)
        return self._drawn[1]

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


    # Where a run starts and ends.

    @property
    def units(self) -> tuple[int, ...]:
        """What the guarantee is for, counted by client: its records, or the one participant that it is."""
        return self.population.by_client if self.protects == "record" else (1,) * len(self.population.sizes)

    def empty_ledger(self) -> Ledger:
        """Return the ledger of a run that has released nothing but what the server knows from the start."""
        task, training, protects = self.task, self.training, self.protects
        rows = task.trained_rows() if protects == "record" and training.figures == "private" else None
        ledger = Ledger(self.population.names, training.delta, training.trust, self.sharers, training.accountant,
                        "; ".join(filter(None, (self.unproved(), task.learned_from_records()))) or None,
                        protects,
                        broadcasts=self.broadcasts or bool(training.risk_every),  # which sends the batch's gradient
                        secure_aggregation=training.secure_aggregation,
                        public=task.public("row" if rows else protects),
                        budget=self.budget.filter if self.budget else None,
                        simulated=None if self.key is None else SEEDED,
                        size=rows or sum(self.units),
                        preprocessing=self.preprocessing)
        if protects == "participant":
            ledger.expose("numbers of records of each participant by group", "the server receives them without noise")
        return ledger

    def averaged(self, sums: Gradients, clients: Sequence[int]) -> Gradients:
        """Return the average of locally trained weights over the clients that answered.

        Args:
            sums: Sums of the weights, each times its client's share, by name.
            clients: Numbers of the clients that answered.
        """
        if len(clients) == len(self.population.sizes):
            return sums
        share = sum(self.client_weights()[client] for client in clients)
        return {name: value / share for name, value in sums.items()}

    def left_out(self) -> LeftOut | None:
        """Return how training records would be decided by the model, had they not trained it; None if some do not."""
        left = self.made.left_out if self.made is not None else None
        return None if left is None else left.of_points(torch.tensor([self.taken]))


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


def _refuse_bins(strategy: Strategy) -> None:
    """Raise `ValueError` for balls in bins where what a run charges would not be right for them."""
    training, steps = strategy.training, strategy.steps_of_epoch
    if steps is None:
        return
    known = training.sampling in strategy.samplings and {*strategy.rates()} == {1 / steps}
    reasons = {
        f'sync is "{strategy.sync}"': strategy.sync != "step",
        f'trust is "{training.trust.value}"': training.trust is not Trust.CENTRAL,
        f"dropouts is {training.dropouts}": training.dropouts > 0,
        f"group_epsilon is {training.group_epsilon}": training.group_epsilon is not None,
        f"this strategy is {type(strategy).__name__}": not known,
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    if found is not None:
        raise ValueError(f'sampling is "balls-in-bins", but {found}, for which it is not accounted for: take sampling '
                         '= "poisson"; or sync = "step", trust = "central", no dropouts, no group_epsilon, and sgd, '
                         "dpsgd, dpsgd-f or dpsgd-f-quantile")


def _refuse_no_local_steps(strategy: Strategy) -> None:
    """Raise `ValueError` for a setting of local epochs where clients take no steps of their own."""
    for name, none in (("proximal", 0), ("local_epochs", 1)) if strategy.sync == "step" else ():
        if (value := getattr(strategy.training, name)) != none:
            raise ValueError(f'{name} is {value:g}, which is for what clients train by themselves, but sync is "step", '
                             'in which they take no steps of their own: take sync = "epoch", with a method that has '
                             f"it, or leave {name} out")


def _refuse_large(strategy: Strategy) -> None:
    """Raise `ValueError` for more records than a gradient sum has room for on the grid of discrete noise.

    Public numbers alone say so, before anything is released. Of a sampled batch more than the expected number of
    records is allowed for, by so many deviations that no batch has more. Local training adds few records at a time, and
    secure sums have a check of their own (`fedfair.mechanisms.integer_sums`).
    """
    training, multiplier = strategy.training, strategy.noise.of_sum or min(strategy.noise.multipliers, default=0.0)
    local = strategy.sync == "epoch" and strategy.protects == "record"
    if training.noise != "discrete" or not multiplier or local or training.secure_aggregation:
        return
    summed = sum(strategy.units) if training.trust is Trust.CENTRAL else max(strategy.units)
    expected = summed * max(strategy.rates())
    own = multiplier * (client_share(training.trust, strategy.sharers) or server_share(training.trust))
    most = int(most_records(own / strategy.entry))
    if min(summed, expected + _DEVIATIONS * math.sqrt(expected)) > most:
        raise no_room(summed, most)


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
