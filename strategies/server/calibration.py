"""How much noise a run takes: as set, or calibrated to a target epsilon with its count queries included.

It follows from how often a record is met, which a method may change (`Sampled`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from fedfair.accounting import Accountant, Release, calibrate, epsilon, multiplier_of
from fedfair.accounting.allocation import Allocation
from fedfair.accounting.events import Preprocessed, Unit, joint_multiplier
from fedfair.accounting.selection import Charged
from fedfair.protocol.local_budget import LocalEpoch
from strategies.server.budget_shares import COUNT_NOISE_RATIO
from strategies.server.population import Population
from strategies.server.training import Training


class Schedule(NamedTuple):
    """Sampling rate and number of steps of one record; and of balls in bins, the number of steps of an epoch."""

    rate: float
    steps: int
    bins: int | None = None

    def charges(self, multiplier: float) -> Counter[Charged]:
        """Return what the steps charge at a noise multiplier.

        Args:
            multiplier: Noise multiplier of every step.
        """
        if self.bins is None:
            return Counter({Release(self.rate, multiplier): self.steps})
        epochs, begun = divmod(self.steps, self.bins)
        return Counter({Allocation(self.bins, self.bins, multiplier): epochs,
                        Allocation(self.bins, begun, multiplier): 1})


class Sampled:
    """How often a method meets a record: in how many rounds, at which rate; a method may override all of it.

    Attributes:
        protects: What neighbouring data sets differ by: one "record", or one "participant" with all its records.
        training: Settings of the training.
        population: Public numbers of records by client and group.
        sync: Mode of the run, "step" or "epoch".
    """

    protects: ClassVar[Unit] = "record"

    training: Training
    population: Population
    sync: Literal["step", "epoch"]

    @property
    def rounds(self) -> int:
        """The number of rounds: int(epochs N / b) steps, or int(epochs / local_epochs) rounds of local epochs."""
        training = self.training
        if training.steps is not None:
            return training.steps
        return int(round(training.epochs * self.rounds_per_epoch, 6))  # 30 · (49 / 3) is a rounding less than 490

    @property
    def rounds_per_epoch(self) -> float:
        """Rounds in which every record is met once on average."""
        if self.sync == "epoch":
            return 1 / self.training.local_epochs
        return self.steps_of_epoch or self.population.records / self.training.batch_size

    def rates(self) -> tuple[float, ...]:
        """Return the sampling rate of each group's records in step mode, `[K]`.

        Override it for a method that samples groups, or participants, at other rates than b / N.
        """
        steps = self.steps_of_epoch
        rate = 1 / steps if steps else self.training.batch_size / self.population.records
        return (rate,) * len(self.population.names)

    @property
    def steps_of_epoch(self) -> int | None:
        """Number of steps of an epoch that a record is in one of, by chance; None where batches are Poisson samples."""
        return self.training.steps_of_epoch(self.population.records)

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
            steps = self.steps_of_epoch
            return self.population.records / steps if steps else self.training.batch_size
        sizes = self.population.by_client
        return sum(min(self.training.batch_size, sizes[client]) for client in clients or range(len(sizes)))

    def schedules(self) -> list[Schedule]:
        """Return what a record of each group (step mode) or client (epoch mode) goes through, for calibration."""
        if self.sync == "step" or self.protects == "participant":
            return [Schedule(rate, self.rounds, self.steps_of_epoch) for rate in self.planned_rates() or self.rates()]
        epochs = [LocalEpoch.of(size, self.training.batch_size, self.training.local_epochs)
                  for size in self.population.by_client]
        return [Schedule(epoch.rate, self.rounds * epoch.steps) for epoch in epochs]


def count_noise(training: Training, noise_multiplier: float) -> float:
    """Return the noise multiplier of the counts: as set, or `COUNT_NOISE_RATIO` times that of the gradients."""
    given = training.count_noise_multiplier
    return COUNT_NOISE_RATIO * noise_multiplier if given is None else given


def search_noise(training: Training) -> float:
    """Return the noise multiplier of the search for a threshold among validation records; 0 for one without noise."""
    if training.threshold_epsilon is None:
        return 0.0
    return multiplier_of(training.threshold_epsilon, training.delta, training.accountant)


def search_charge(training: Training, protects: Unit) -> Release | None:
    """Return what the search for a threshold charges to what the training protects; None if it reads others.

    Raises `ValueError` if it reads participants without noise, and a target epsilon is to be kept.
    """
    if protects != "participant" or not training.searches:
        return None
    noise = search_noise(training)
    if training.target_epsilon and not noise:
        raise ValueError("target_epsilon cannot be kept: the search for a threshold reads validation records of "
                         "participants without noise; give threshold_epsilon a part of it, or leave the search out")
    return Release(1.0, noise)


class Beside(NamedTuple):
    """What a record is charged beside its schedule: a count query on every batch if `counting`, the release of a
    threshold search, and that of private preprocessing.
    """

    counting: bool = False
    search: Release | None = None
    preprocessing: Preprocessed | None = None

    def delta(self, training: Training) -> float:
        """Return the delta that is left for what is composed."""
        return training.delta - (self.preprocessing.delta if self.preprocessing else 0.0)


@dataclass(frozen=True)
class NoisePlan:
    """How much noise a run adds, and what it charges each group: fixed before its first round.

    Attributes:
        multipliers: Noise multipliers by group, `[K]` (step mode), or by client (epoch mode).
        of_sum: Noise multiplier of one gradient sum in step mode, in units of the rule's sensitivity.
        of_counts: Noise multiplier of the counts of one batch, or None for a method that does not count.
        by_group: The multipliers that each group is charged, `[K]`, where they are not those of the sum; else None.

    Examples:
        >>> from fedfair.protocol.task import Task
        >>> from strategies.dpsgd_f import DpsgdF
        >>> from strategies.server.population import Population
        >>> population = Population(("women", "men"), ((600, 400),), (60, 40), ("no", "yes"))
        >>> plan = DpsgdF(Task(), Training(batch_size=100, noise_multiplier=2.0), population).noise
        >>> plan
        NoisePlan(multipliers=(2.0, 2.0), of_sum=2.0, of_counts=20.0, by_group=None)
        >>> plan.times(1.5)
        NoisePlan(multipliers=(3.0, 3.0), of_sum=3.0, of_counts=30.0, by_group=None)
    """

    multipliers: tuple[float, ...]
    of_sum: float = 0.0
    of_counts: float | None = None
    by_group: tuple[float, ...] | None = None

    def times(self, factor: float) -> NoisePlan:
        """Return a plan with so many times the noise.

        Args:
            factor: At least 1.
        """
        return NoisePlan(tuple(factor * each for each in self.multipliers), factor * self.of_sum,
                         None if self.of_counts is None else factor * self.of_counts,
                         None if self.by_group is None else tuple(factor * each for each in self.by_group))


def own_noise(schedule: Schedule, training: Training, beside: Beside) -> float:
    """Return the noise multiplier for one schedule: as set, or calibrated to the target epsilon with all `beside` it.

    Raises `ValueError` if the target epsilon cannot be reached.
    """
    if training.target_epsilon is None:
        return training.noise_multiplier
    return calibrate(lambda noise: _charged(schedule, training, beside, noise), training.target_epsilon,
                     beside.delta(training), training.accountant)


def common_noise(schedules: Sequence[Schedule], training: Training, beside: Beside) -> float:
    """Return one noise multiplier that is enough for every schedule; raise what `own_noise` does."""
    if training.target_epsilon is None:
        return training.noise_multiplier
    if len({*schedules}) == 1:
        return own_noise(schedules[0], training, beside)

    def spent(schedule: Schedule, noise: float, accountant: Accountant) -> float:
        """Return the epsilon of a schedule at a noise multiplier."""
        return epsilon(_charged(schedule, training, beside, noise), beside.delta(training), accountant)

    enough = 0.0
    for schedule in sorted(set(schedules), key=lambda s: spent(s, 1.0, "rdp"), reverse=True):
        if enough == 0 or spent(schedule, enough, training.accountant) > training.target_epsilon:
            enough = own_noise(schedule, training, beside)
    return enough


def _charged(schedule: Schedule, training: Training, beside: Beside, noise: float) -> Counter[Charged]:
    """Return all releases that a record is charged for."""
    counts = count_noise(training, noise) if beside.counting else None
    charged = schedule.charges(joint_multiplier(noise, counts))
    if beside.search is not None:
        charged[beside.search] += 1
    if beside.preprocessing is not None:
        charged[Release(1.0, beside.preprocessing.multiplier)] += 1
    return charged
