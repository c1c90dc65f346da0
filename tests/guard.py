"""A guard against tests that hang. It counts processor time: on a machine with other work a test takes longer.

A test hangs if, in ten minutes, it and all that it started have computed for less than a minute and a half, or if it
computes without end. Beside four busy processes on two cores a test that computes gets four minutes of ten; a Ray
cluster and a SuperLink that wait for nothing take half a minute. Then the guard kills what the test started, so that
the test fails by what it waits for; if it does not end even so, the guard shows where it waits, and ends the whole
process.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

IDLE, LITTLE = 600.0, 90.0
"""A test that computes for less than LITTLE seconds of IDLE hangs."""
MOST = 900.0
"""Seconds of processor time that no test needs."""
GRACE = 60.0
"""Seconds of the clock in which a test ends after all that it started was killed."""
_TICK, _SUBREAPER = 5.0, 36


def adopt_orphans() -> None:
    """Let processes whose parent ends become children of this one, so that they are counted, and found to be ended."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)


def started() -> list[psutil.Process]:
    """Return the processes that were started by this one, or by those, and are there."""
    return psutil.Process().children(recursive=True)


def spent() -> float:
    """Return the seconds of processor time of this process and of those that it started, also of those that ended."""
    seconds = sum(os.times()[:4])
    for process in started():
        with suppress(psutil.Error):
            seconds += sum(process.cpu_times()[:4])  # and those of its children that ended
    return seconds


def end_started() -> None:
    """Kill what this process started."""
    for process in started():
        with suppress(psutil.Error):
            process.kill()


class Guard(threading.Thread):
    """The guard over the test of the moment.

    Args:
        show: Lets what is written to `sys.stderr` be seen.
    """

    def __init__(self, show: Callable[[], object] = lambda: None) -> None:
        super().__init__(name="guard", daemon=True)
        self.show = show
        self.test = ""
        self.computed = self.begun = 0.0
        self.seen: deque[tuple[float, float]] = deque()

    @contextmanager
    def over(self, test: str) -> Iterator[None]:
        """Guard a test."""
        self.seen.clear()
        self.test, self.begun = test, self.computed
        try:
            yield
        finally:
            self.test = ""

    def run(self) -> None:
        """Look after the tests until the process ends.

        What a process computed may be lost when it ends, and is counted before.
        """
        before = spent()
        while True:
            time.sleep(_TICK)
            test, now = self.test, spent()
            self.computed += max(now - before, 0.0)
            before = now
            if test and (why := self.hangs(time.monotonic(), self.computed)):
                self.end(test, why)

    def hangs(self, now: float, seconds: float) -> str:
        """Return why the test must be hanging, at a time of the clock and of the processor; "" if it may not be."""
        self.seen.append((now, seconds))
        while len(self.seen) > 1 and self.seen[1][0] <= now - IDLE:
            self.seen.popleft()
        (then, before), computed = self.seen[0], seconds - self.begun
        if computed > MOST:
            return f"it has computed for {computed:.0f} seconds"
        if now - then >= IDLE and seconds - before < LITTLE:
            return f"it has computed for {seconds - before:.0f} of {now - then:.0f} seconds"
        return ""

    def end(self, test: str, why: str) -> None:
        """End a test that hangs."""
        end_started()
        time.sleep(GRACE)
        if self.test == test:
            self.show()
            print(f"{test} hangs: {why}", file=sys.stderr, flush=True)
            faulthandler.dump_traceback(file=sys.stderr)
            os._exit(1)


def wait_until(there: Callable[[], bool], *by: subprocess.Popen[str]) -> None:
    """Wait until a condition holds, however long it takes while the guard lets the test be.

    Raises `AssertionError` if one of the programs that bring it about has ended.
    """
    while not there():
        ended = [program.args for program in by if program.poll() is not None]
        assert not ended or there(), f"ended too early: {ended}"
        time.sleep(0.05)
