"""Independent work in several processes of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import TypeVar

import torch

Item = TypeVar("Item")
Found = TypeVar("Found")


def in_processes(work: Callable[[Item], Found], items: Sequence[Item], jobs: int) -> Iterator[tuple[int, Found]]:
    """What `work` finds for each item, with its place among them, as they end, `jobs` at a time.

    Each process has one thread of PyTorch, and ends when this one does, however that happens, or is interrupted. Work
    and items must be picklable. Raises what the work raises, and then does not begin with what is left.
    """
    context = get_context("spawn")
    ending, going_on = context.Pipe(duplex=False)
    with ending, going_on, ProcessPoolExecutor(jobs, context, _begin, (ending,)) as pool:
        running = {pool.submit(work, item): place for place, item in enumerate(items)}
        try:
            for finished in as_completed(running):
                yield running[finished], finished.result()
        except (KeyboardInterrupt, GeneratorExit):  # the caller may have been interrupted between two results
            going_on.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(ending: Connection) -> None:
    """What a process does before its first work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes: the parent decides
    torch.set_num_threads(1)
    Thread(target=_end_at_once, args=(ending,), daemon=True).start()


def _end_at_once(ending: Connection) -> None:
    """Wait for the parent to close its end of a pipe, and end too: one that was killed has closed it as well."""
    ending.poll(None)
    os._exit(1)
