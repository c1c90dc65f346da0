"""More records than a sum on the grid of discrete noise has room for, in runs: refused before anything is released."""

from __future__ import annotations

from typing import Any

import pytest

from fedfair.mechanisms.noise import most_records
from fedfair.protocol.task import Task
from strategies.dpsgd import Dpsgd
from strategies.server.population import Population
from strategies.server.releases.private_figures import PrivateFigures
from strategies.server.training import Training

WORDS = r"the table has .* rows, but at this epsilon .* room on the grid of discrete noise"
EXACT = Task(dtype="float64")


def population(records: int, clients: int = 2) -> Population:
    """Return clients with as many records together."""
    return Population(("f", "m"), ((records // clients // 2,) * 2,) * clients, (5, 5), ("no", "yes"))


def training(**more: Any) -> Training:
    """Return settings of a batch of all records and discrete noise."""
    return Training(**{"steps": 1, "noise": "discrete", "noise_multiplier": 1.0, "delta": 1e-9, **more})


def test_a_gradient_sum_of_as_many_records_as_there_is_room_for_is_taken_and_of_more_is_not() -> None:
    room = int(most_records(1.0)) // 4 * 4
    Dpsgd(EXACT, training(batch_size=room), population(room))
    with pytest.raises(ValueError, match=WORDS):
        Dpsgd(EXACT, training(batch_size=room + 8), population(room + 8))
    Dpsgd(EXACT, training(batch_size=room + 8, noise="gaussian"), population(room + 8))
    Dpsgd(EXACT, training(batch_size=room + 8, noise_multiplier=1.1), population(room + 8))


def test_batches_that_are_sampled_need_room_for_a_batch_alone() -> None:
    room = int(most_records(1.0))
    Dpsgd(EXACT, training(batch_size=room // 2), population(100 * room))
    with pytest.raises(ValueError, match=WORDS):
        Dpsgd(EXACT, training(batch_size=room - 1), population(100 * room))


@pytest.mark.parametrize(("trust", "times"), [("local", 2), ("distributed", 1.4)])
def test_what_a_client_adds_noise_to_is_what_needs_room(trust: str, times: float) -> None:
    records = int(times * most_records(1.0)) // 4 * 4
    Dpsgd(EXACT, training(batch_size=records, trust=trust), population(records))
    with pytest.raises(ValueError, match=WORDS):
        Dpsgd(EXACT, training(batch_size=records + 400_000, trust=trust), population(records + 400_000))


def test_figures_are_counts_of_records_with_their_own_epsilon() -> None:
    given = training(batch_size=100, figures="private", figures_epsilon=50.0)
    PrivateFigures(EXACT, given, population(10**6), "record", None)
    with pytest.raises(ValueError, match=WORDS):
        PrivateFigures(EXACT, given, population(10**8), "record", None)
