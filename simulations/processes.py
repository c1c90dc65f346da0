"""Independent work in several processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

import torch

Item = TypeVar("Item")
Found = TypeVar("Found")


def in_processes(work: Callable[[Item], Found], items: Sequence[Item], jobs: int) -> Iterator[tuple[int, Found]]:
    """What `work` finds for each item, with its place among them, as they end, `jobs` at a time.

    Each process has one thread of PyTorch, and ends when this one does, however that happens. Work and items must be
    picklable. Raises what the work raises, and then does not begin with what is left.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin) as pool:
        running = {pool.submit(work, item): place for place, item in enumerate(items)}
        try:
            for finished in as_completed(running):
                yield running[finished], finished.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """What a process does before its first work."""
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the parent to end, and end too: a parent that was killed can no longer say so."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
