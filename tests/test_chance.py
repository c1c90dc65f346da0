"""What a test draws is the same whichever tests ran before it, and another process draws its own."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch

from fedfair.mechanisms.randomness import SystemEntropy, random_bits
from tests.chance import chance_of


def drawn() -> list[float]:
    """Draw from all that a test may draw from."""
    return [int(random_bits(SystemEntropy(), 1)[0]), torch.rand(1).item(), np.random.rand(), random.random()]  # noqa: S311


@pytest.fixture(scope="module")
def shared() -> list[float]:
    """Draw for several tests."""
    return drawn()


@pytest.mark.parametrize("number", range(2))
def test_a_test_draws_by_its_name_and_what_it_shares_by_another(
        number: int, shared: list[float], request: pytest.FixtureRequest) -> None:
    """Whichever ran before, and whether the fixture was there."""
    now = drawn()
    for found, name in ((now, request.node.nodeid), (shared, "tests/test_chance.py::shared")):
        with chance_of(name):
            assert found == drawn()


def test_a_name_decides_what_is_drawn_and_leaves_no_trace() -> None:
    with chance_of("here"):
        before = drawn()
        with chance_of("there"):
            there = drawn()
        after = drawn()
    with chance_of("there"):
        assert drawn() == there
    with chance_of("here"):
        assert (drawn(), drawn()) == (before, after)
    assert len({*before, *there, *after}) == 12


def test_a_forked_process_draws_from_the_operating_system() -> None:
    """Noise that two processes share would be none."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, random_bits(SystemEntropy(), 1).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as there:
        assert there.read() != random_bits(SystemEntropy(), 1).tobytes()
