"""Random numbers that a model draws from the global generators, made independent of other examples and of the run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seeds(count: int) -> list[int]:
    """Draw one seed for each of `count` examples from PyTorch's global generator."""
    return torch.randint(2**32, (count,)).tolist()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python while the context lasts; leave them as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
