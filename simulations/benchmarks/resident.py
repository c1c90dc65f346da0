"""Resident memory of servers that run for long, and of the programs that they start, by the time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore, Thread

import numpy as np
import psutil

from simulations.benchmarks.report import Figures

WARM = 600.0
"""Seconds at the start that are told apart."""
_WINDOW, _EVERY = 30.0, 3.0  # seconds of which the most memory counts, and between two looks


class Watch:
    """Resident memory in MiB of some processes and of what they started, over the time.

    A program that is started again and again, as Flower's apps are, is one row: what each of its processes had at most.

    Args:
        processes: Process ids by name.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        self.start = time.monotonic()
        self._processes = {name: psutil.Process(number) for name, number in processes.items()}
        self._most: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Look at the memory again and again."""
        ended = Semaphore(0)

        def look() -> None:
            """Look until the end."""
            while not ended.acquire(timeout=_EVERY):
                self.look()

        thread = Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            ended.release()
            thread.join()

    def look(self) -> None:
        """Look at the memory of all processes once."""
        for name, process in self._processes.items():
            self._keep(name, process)
            for child in process.children(recursive=True):
                self._keep(name, child, below=True)

    def _keep(self, name: str, process: psutil.Process, below: bool = False) -> None:
        """Keep the most that a process had in half a minute; one that has ended has none."""
        try:
            mebibytes = process.memory_info().rss / 2**20
            most = self._most[f"{name}: {_program(process)}" if below else name]
        except psutil.Error:
            return
        moment = process.pid, int((time.monotonic() - self.start) / _WINDOW)
        most[moment] = max(most.get(moment, 0.0), mebibytes)

    def rows(self) -> list[Figures]:
        """Return a row for each program: its memory at first, when it was warm, at the end, and by how much it grew."""
        return [_row(name, most) for name, most in sorted(self._most.items())]


def _row(name: str, most: Mapping[tuple[int, int], float]) -> Figures:
    """Return the row of a program, from the memory of each process in each half minute."""
    course = _course(most)
    times, memory = np.array(list(course)) * _WINDOW, np.array(list(course.values()))
    warm = times >= WARM
    slope = np.polyfit(times[warm] / 3600, memory[warm], 1)[0] if warm.sum() > 2 else None
    return {"process": name, "started": float(len({process for process, _ in most})), "first": memory[0],
            "warm": memory[warm][0] if warm.any() else None, "last": memory[-1], "most": memory.max(),
            "MiB an hour": slope}


def _course(most: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Return memory by half minute; that of a program of many processes is what each had at most, when it began.

    The latest of many is left out: it may only have begun.
    """
    whole: dict[int, float] = {}
    began: dict[int, int] = {}
    for process, window in most:
        began.setdefault(process, window)
    latest = max(began, key=lambda process: (began[process], process))
    for (process, window), mebibytes in most.items():
        if len(began) > 1 and process == latest:
            continue
        at = window if len(began) == 1 else began[process]
        whole[at] = max(whole.get(at, 0.0), mebibytes)
    return whole


def share_of_a_core(processes: Mapping[str, int], since: float) -> float:
    """Return how many cores processes, and what they started, have taken since a time of `time.monotonic`."""
    used = 0.0
    for number in processes.values():
        for process in (psutil.Process(number), *psutil.Process(number).children(recursive=True)):
            try:
                used += sum(process.cpu_times()[:4])  # with those of its children that have ended
            except psutil.Error:
                continue
    return used / (time.monotonic() - since)


def _program(process: psutil.Process) -> str:
    """Return the name of the program that a process runs."""
    names = [Path(word).name for word in process.cmdline()[:2]]
    return next((name for name in names if name.startswith(("flwr", "flower"))), process.name()).rpartition("-")[2]
