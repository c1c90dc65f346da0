"""Independent work in several processes of this machine."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from threading import Thread
from typing import TypeVar

import numpy as np
import torch

Item = TypeVar("Item")
Output = TypeVar("Output")


def in_processes(work: Callable[[Item], Output], items: Sequence[Item], jobs: int) -> Iterator[tuple[int, Output]]:
    """Yield the index of each item and what `work` returns for it, in order of completion, with `jobs` processes at a
    time.

    Each process has one PyTorch thread. It ends when this process ends or is interrupted, however that happens. Work
    and items must be picklable. If the work raises, this raises the same, and does not begin with the remaining items.
    """
    context = _context()
    ending, going_on = context.Pipe(duplex=False)
    with ending, going_on, ProcessPoolExecutor(jobs, context, _begin, (ending, dict(os.environ))) as pool:
        running = {pool.submit(work, item): index for index, item in enumerate(items)}
        try:
            for finished in as_completed(running):
                yield running[finished], finished.result()
        except (KeyboardInterrupt, GeneratorExit):  # the caller may have been interrupted between two results
            going_on.close()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _context() -> BaseContext:
    """Return how processes start: on Linux from one that has imported everything, whose memory they share."""
    if sys.platform != "linux":  # elsewhere libraries may not survive a fork
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(["simulations.plans.compare"])
    return context


def _begin(ending: Connection, environment: Mapping[str, str]) -> None:
    """Prepare a worker process: ignore interrupts, use one thread, say nothing of the data, and watch the parent.

    What it would share with all that were forked from the same process becomes its own: the parent's environment of
    now, and random numbers of NumPy that nobody seeded.
    """
    os.environ.clear()
    os.environ.update(environment)
    np.random.seed()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes, but the parent decides
    torch.set_num_threads(1)
    logging.getLogger("fedfair.datasets").setLevel(logging.ERROR)  # the parent has said what it left out of the data
    Thread(target=_end_at_once, args=(ending,), daemon=True).start()


def _end_at_once(ending: Connection) -> None:
    """Wait until the parent closes its end of the pipe, then exit: the kernel closes it if the parent is killed."""
    ending.poll(None)
    os._exit(1)
