"""Independent work in several processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

import torch

Item = TypeVar("Item")
Found = TypeVar("Found")


def in_processes(work: Callable[[Item], Found], items: Sequence[Item], jobs: int) -> Iterator[tuple[int, Found]]:
    """What `work` finds for each item, with its place among them, as they end, `jobs` at a time.

    Each process has one thread of PyTorch. Work and items must be picklable. Raises what the work raises, and then does
    not begin with what is left.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        running = {pool.submit(work, item): place for place, item in enumerate(items)}
        try:
            for finished in as_completed(running):
                yield running[finished], finished.result()
        finally:
            pool.shutdown(cancel_futures=True)
