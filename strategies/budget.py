"""How much noise a run takes: as set, or calibrated to a target epsilon with its count queries included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedfair.accounting import Release, calibrate
from fedfair.accounting.composition import joint_multiplier
from strategies.training import Training


class Schedule(NamedTuple):
    """What one record will go through: its sampling rate, and how many steps."""

    rate: float
    steps: int


def count_noise(training: Training, noise_multiplier: float) -> float:
    """The noise multiplier of the counts: as set, or ten times the gradients'."""
    given = training.count_noise_multiplier
    return 10 * noise_multiplier if given is None else given


def noise_multipliers(schedules: Sequence[Schedule], training: Training, counting: bool) -> tuple[float, ...]:
    """The noise multiplier for each schedule; `counting` charges a count query on every batch.

    Raises `ValueError` if the target epsilon cannot be reached.
    """
    target = training.target_epsilon
    if target is None:
        return (training.noise_multiplier,) * len(schedules)

    def calibrated(schedule: Schedule) -> float:
        def releases(multiplier: float) -> dict[Release, int]:
            counts = count_noise(training, multiplier) if counting else None
            return {Release(schedule.rate, joint_multiplier(multiplier, counts)): schedule.steps}

        return calibrate(releases, target, training.delta, training.accountant)

    found = {schedule: calibrated(schedule) for schedule in set(schedules)}
    return tuple(found[schedule] for schedule in schedules)
