"""What tests draw at random: the same numbers whenever a test is run, whichever tests ran before it.

A test that holds a figure against noise would else fail by chance, about as often as its bound says. Here the operating
system's entropy for noise, and the global generators of PyTorch, NumPy and Python, follow from the name of the test, or
of a fixture that several tests share. What draws, and how often, is still the program's own. Other processes, also
forked ones, draw from the operating system; so do the tests of a model for interaction, which use `secrets`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace


@contextmanager
def chance_of(name: str) -> Iterator[None]:
    """Let what this process draws follow from a name while the context lasts; then go on as if nothing was drawn."""
    import torch

    from fedfair.gradients.trial import seeded
    from fedfair.mechanisms import randomness

    process, draws, before = os.getpid(), random.Random(name), randomness.os  # noqa: S311

    def urandom(count: int) -> bytes:
        """Return random bytes."""
        return draws.randbytes(count) if os.getpid() == process else os.urandom(count)

    randomness.os = SimpleNamespace(urandom=urandom)  # type: ignore[assignment]
    try:
        with seeded(draws.getrandbits(32), torch.device("cpu")):
            yield
    finally:
        randomness.os = before
