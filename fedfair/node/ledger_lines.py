"""The lines of a node's ledger: what each says, and which of them must be read.

Each line is JSON: an entry; the settling of a batch; a note on exact figures; or the totals of all lines before.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedfair.accounting.events import Release

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
            line = json.loads(text)
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
