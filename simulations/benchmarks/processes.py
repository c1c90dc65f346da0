"""Cost of a command and all processes that it starts: the time that it reports, and its peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

_EVERY = 0.25  # seconds between two looks at the memory


class Measured(NamedTuple):
    """Last line that a command printed, which is JSON, and its peak memory in MiB."""

    said: dict[str, Any]
    mebibytes: float


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None, timeout: float = 600) -> Measured:
    """Run a command of this program's own; raises `RuntimeError` with its last lines if it fails or takes too long.

    Memory that processes share (code, Ray's object store) is counted once: the proportional set sizes of the command
    and its descendants, added up. Each look stops the command and takes some 15 ms of a core.
    """
    peak = 0.0

    def look(process: int) -> None:
        """Keep the most memory so far."""
        nonlocal peak
        peak = max(peak, sum(map(_proportional, descendants(process))))

    return Measured(_said(command, environment, timeout, look), peak)


def undisturbed(command: Sequence[str], timeout: float = 600) -> dict[str, Any]:
    """Return the last line that a command prints, which is JSON; run it as `measure` does, but without looks."""
    return _said(command, None, timeout, lambda process: None)


def _said(command: Sequence[str], environment: Mapping[str, str] | None, timeout: float, look: Callable[[int], None]
          ) -> dict[str, Any]:
    """Return the last line that a command prints; call `look` with its process id every `_EVERY` seconds."""
    start = time.monotonic()
    with TemporaryFile("w+") as output, subprocess.Popen(  # noqa: S603
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}) as process:
        while process.poll() is None:
            look(process.pid)
            if time.monotonic() - start > timeout:
                process.kill()
            time.sleep(_EVERY)
        output.seek(0)
        lines = output.read().strip().splitlines()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {' | '.join(lines[-5:])}")
    said: dict[str, Any] = json.loads(lines[-1])
    return said


def descendants(root: int) -> Iterator[int]:
    """Yield the process `root` and all that it started, directly or not."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
        except OSError:
            continue  # it has ended since
        children[int(parent)].append(int(folder.name))
    waiting = [root]
    while waiting:
        yield (now := waiting.pop())
        waiting += children[now]


def _proportional(process: int) -> float:
    """Return a process's proportional set size in MiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
