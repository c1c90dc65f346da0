"""A node's own ledger: what it has released of its records, over all runs, in a file that is only appended to.

An entry is written and synced before its release leaves. Every `_EVERY` lines the totals so far follow, so that reading
takes no longer as the file grows. A line that was cut off, by a crash or a full disk, counts like the entry before it,
although its release never left.

The lines of a node's ledger: what each says, and which of them must be read.

Each line is JSON: an entry; the settling of a batch; a note on exact figures; or the totals of all lines before.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from fedfair.accounting.events import Release
from fedfair.accounting.odometer import spent, stays_within
from fedfair.plugins.text_values import from_json

_BLOCK = 1 << 16
_TOTALS = b'\n{"totals"'


@dataclass
class State:
    """What a ledger says: releases by data set, batches of which a promised sum is due, and the latest entry."""

    released: dict[str, Counter[Release]] = field(default_factory=dict)
    promised: dict[str, Release] = field(default_factory=dict)
    latest: dict[str, Any] | None = None
    lines: int = 0  # since the latest totals

    @staticmethod
    def read(path: Path) -> State:
        """Read a ledger from its latest totals on; one that is not there is empty."""
        state = State()
        for line in _tail(path).split(b"\n"):
            if line:
                state.take(line)
        return state

    def of(self, data: str) -> Counter[Release]:
        """Return a copy of the releases of one data set."""
        return self.released.get(data, Counter()).copy()

    def totals(self) -> dict[str, Any]:
        """Return the line that stands for all before it."""
        return {"totals": {data: [[*release, count] for release, count in releases.items()]
                           for data, releases in self.released.items()},
                "promised": self.promised, "latest": self.latest}

    def take(self, text: bytes) -> None:
        """Add a line; one that cannot be read counts like the latest entry."""
        try:
            line = from_json(text)
        except ValueError:
            line = self.latest or {}
        self.lines += 1
        if "totals" in line:
            self.released = {data: Counter({Release(rate, multiplier): count for rate, multiplier, count in releases})
                              for data, releases in line["totals"].items()}
            self.promised = {batch: Release(*release) for batch, release in line["promised"].items()}
            self.latest, self.lines = line["latest"], 0
        elif "settles" in line:
            self.promised.pop(line["settles"], None)
        elif "rate" in line:
            releases = self.released.setdefault(line["data"], Counter())
            releases[Release(line["rate"], line["multiplier"])] += line["steps"]
            if line["follows"] is not None:
                self.promised[line["batch"]] = Release(*line["follows"])
            self.latest = line


def _tail(path: Path) -> bytes:
    """Return the end of a ledger from its latest totals on, or all of it."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        start = file.seek(0, os.SEEK_END)
        tail = b""
        while start:
            size = min(_BLOCK, start)
            start -= size
            file.seek(start)
            tail = file.read(size) + tail
            if (found := tail.rfind(_TOTALS)) >= 0 and tail.find(b"\n", found + 1) >= 0:
                return tail[found + 1:]
        return tail


_EVERY = 200


class NodeLedger:
    """The ledger in one file, which the processes of a node share under a lock.

    Args:
        path: The file; it is made with the first entry. The lock lies beside it.

    Examples:
        >>> ledger, release = NodeLedger(Path("node-ledger.jsonl")), Release(rate=1.0, multiplier=10.0)
        >>> [ledger.enter("digits", release, steps=2, limit=1.0, delta=1e-5) for _ in range(4)]
        [True, True, True, False]
        >>> ledger.released("digits"), round(ledger.epsilon("digits", delta=1e-5), 2)
        (Counter({Release(rate=1.0, multiplier=10.0): 6}), 0.95)
        >>> ledger.enter("mnist", release, 1, 1.0, 1e-5, batch="batch 7", follows=Release(1.0, 12.0))
        True
        >>> [ledger.settle("batch 7", keeps=lambda promised: promised.multiplier <= 12.0) for _ in range(2)]
        [True, False]
        >>> ledger.note("mnist", "exchanges.send_evaluation")
        >>> len(Path("node-ledger.jsonl").read_text().splitlines())
        6
    """

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, FileLock(f"{path}.lock")

    def enter(self, data: str, release: Release, steps: int, limit: float, delta: float, *, exchange: str = "",
              batch: str = "", follows: Release | None = None) -> bool:
        """Enter a release that is about to leave, and say whether it may: whether all stay within the limit.

        When this returns True, the entry is on the disk.

        Args:
            data: Name of the records.
            release: What a record is charged for one step.
            steps: Number of steps.
            limit: Largest epsilon.
            delta: Its delta.
            exchange: What is asked for, as a note.
            batch: Name of the batch, if a later exchange may ask for the sum that `follows`.
            follows: The sum that is part of this charge.

        Raises:
            OSError: If the entry cannot be written; then nothing may leave.
        """
        with self._lock:
            state = State.read(self.path)
            releases = state.of(data)
            releases[release] += steps
            if not stays_within(releases, limit, delta):
                return False
            self._append(state, {"data": data, "rate": release.rate, "multiplier": release.multiplier, "steps": steps,
                                 "exchange": exchange, "batch": batch, "follows": follows})
            return True

    def settle(self, batch: str, keeps: Callable[[Release], bool]) -> bool:
        """Say whether a sum over a batch was charged already, with its counts, and keeps what was promised of it.

        A batch is settled once.

        Args:
            batch: Name of the batch.
            keeps: Says whether the sum carries the noise that was promised.

        Raises:
            OSError: If this cannot be written; then nothing may leave.
        """
        with self._lock:
            state = State.read(self.path)
            if batch not in state.promised or not keeps(state.promised[batch]):
                return False
            self._append(state, {"settles": batch})
            return True

    def note(self, data: str, exact: str) -> None:
        """Note that exact figures leave, which no epsilon covers.

        Args:
            data: Name of the records.
            exact: The exchange.

        Raises:
            OSError: If the note cannot be written; then nothing may leave.
        """
        with self._lock:
            self._append(State.read(self.path), {"data": data, "exact": exact})

    def released(self, data: str) -> Counter[Release]:
        """Return how often each release of some records was made.

        Args:
            data: Name of the records.
        """
        with self._lock:
            return State.read(self.path).of(data)

    def epsilon(self, data: str, delta: float) -> float:
        """Return what was spent of some records (`fedfair.accounting.odometer.spent`).

        Args:
            data: Name of the records.
            delta: Delta of the figure.
        """
        releases = self.released(data)
        return spent(releases, delta) if releases else 0.0

    def _append(self, state: State, line: dict[str, Any]) -> None:
        """Append a line, and totals when they are due, and wait until the disk has them."""
        new = not self.path.exists()
        added = [line]
        if state.lines >= _EVERY:
            state.take(json.dumps(line).encode())
            added.append(state.totals())
        text = b"".join(json.dumps(each).encode() + b"\n" for each in added)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                text = b"\n" + text
            if file.write(text) != len(text):
                raise OSError(f"{self.path} could not be written: is the disk full?")
            os.fsync(file.fileno())
        if new:
            _sync_folder(self.path.parent)


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has a new file's name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
