"""Limit PyTorch to one thread: models are tiny here, and one thread is faster than two that wait for each other."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread(two_threads: None) -> None:
    """Apply after the fixture that all tests share."""
    torch.set_num_threads(1)
