"""How much noise a run takes: as set, or calibrated to a target epsilon with its count queries included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fedfair.accounting import Accountant, Release, calibrate, epsilon
from fedfair.accounting.events import joint_multiplier
from strategies.server.training import Training


class Schedule(NamedTuple):
    """What one record will go through: its sampling rate, and how many steps."""

    rate: float
    steps: int


def count_noise(training: Training, noise_multiplier: float) -> float:
    """The noise multiplier of the counts: as set, or ten times the gradients'."""
    given = training.count_noise_multiplier
    return 10 * noise_multiplier if given is None else given


def own_noise(schedule: Schedule, training: Training, counting: bool, search: Release | None = None) -> float:
    """The noise multiplier for one schedule; `counting` charges a count query on every batch, `search` is charged
    besides: the search for a threshold, where it reads records of those who are protected.

    Raises `ValueError` if the target epsilon cannot be reached.
    """
    if training.target_epsilon is None:
        return training.noise_multiplier
    return calibrate(lambda noise: _charged(schedule, training, counting, search, noise), training.target_epsilon,
                     training.delta, training.accountant)


def common_noise(schedules: Sequence[Schedule], training: Training, counting: bool, search: Release | None = None
                 ) -> float:
    """One noise multiplier that is enough for every schedule; see `own_noise`, and raises as it does."""
    if training.target_epsilon is None:
        return training.noise_multiplier

    def spent(schedule: Schedule, noise: float, accountant: Accountant) -> float:
        """The epsilon of a schedule at a noise multiplier."""
        return epsilon(_charged(schedule, training, counting, search, noise), training.delta, accountant)

    found = 0.0
    for schedule in sorted(set(schedules), key=lambda s: spent(s, 1.0, "rdp"), reverse=True):
        if found == 0 or spent(schedule, found, training.accountant) > training.target_epsilon:
            found = own_noise(schedule, training, counting, search)
    return found


def _charged(schedule: Schedule, training: Training, counting: bool, search: Release | None, noise: float
             ) -> Counter[Release]:
    """What a record is charged in all."""
    counts = count_noise(training, noise) if counting else None
    charged = Counter({Release(schedule.rate, joint_multiplier(noise, counts)): schedule.steps})
    if search is not None:
        charged[search] += 1
    return charged
