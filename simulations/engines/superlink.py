"""The SuperLink behind `flwr run`: where, when, and with which settings it was started.

`flwr run` starts one and leaves it running. A later run, from another environment or folder, is run by the first one's
nevertheless.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil

_PORT_VARIABLE, _USUAL_PORT = "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "39091"
PORT = int(os.environ.get(_PORT_VARIABLE, _USUAL_PORT))
"""Where `flwr run` looks for a SuperLink on this machine, as Flower itself says."""
_READ_BY_RUNS = ("CUDA_VISIBLE_DEVICES", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "RAY_ADDRESS")


class Started(NamedTuple):
    """What a process was started with.

    Attributes:
        process: Its number.
        user: Who runs it.
        when: Seconds since 1970.
        environment: Folder of its Python environment.
        folder: Where it runs; None if that cannot be read, or is gone.
        settings: Environment variables that runs read; None if they cannot be read.
    """

    process: int
    user: str
    when: float
    environment: Path
    folder: Path | None
    settings: dict[str, str] | None


def local_superlink() -> Started | None:
    """Return the SuperLink that the next `flwr run` on this machine will meet; None if it starts one."""
    return next(_running("flower-superlink", "--port", str(PORT)), None)


def superlink_of_this_process() -> Started | None:
    """Return the SuperLink that started this process; None for a deployment, which is not that of `flwr run`."""
    above = [started for parent in psutil.Process().parents()
             if _is(parent, "flower-superlink", "--simulation") and (started := _started(parent))]
    return above[0] if above else None


def flwr_run() -> Started | None:
    """Return the latest `flwr run` that still shows its log and meets the SuperLink at `PORT`.

    One of another user counts, whose port cannot be read.
    """
    here = [found for found in _running("flwr", "run") if _port(found.process) in (str(PORT), None)]
    return max(here, key=lambda found: found.when, default=None)


def this_process() -> Started | None:
    """Return what this process was started with."""
    return _started(psutil.Process())


def described(link: Started) -> str:
    """Say which SuperLink it is."""
    when = datetime.fromtimestamp(link.when).strftime("%Y-%m-%d %H:%M")
    within = f" in {link.folder}" if link.folder else ""
    return f"process {link.process}, the SuperLink that `flwr run` started on {when} from {link.environment}{within}"


def stale(link: Started, asking: Started) -> list[str]:
    """Return in what a SuperLink differs from a process that is to use it, as parts of a sentence.

    Args:
        link: The SuperLink.
        asking: A `flwr run`, or a process in its place.
    """
    found = []
    if link.user != asking.user:
        found.append(f"it belongs to {link.user}, whose rights and files runs then have")
    if not link.environment.exists():
        found.append(f"its environment {link.environment} is gone, so that no run begins")
    elif link.environment.resolve() != asking.environment.resolve():
        found.append(f"it was started from another environment than {asking.environment}")
    if link.folder is None:
        found.append("the folder in which it was started is gone")
    for name in sorted({*(link.settings or {}), *(asking.settings or {})}):
        before, now = (each.settings.get(name) if each.settings is not None else None for each in (link, asking))
        if link.settings is not None and asking.settings is not None and before != now:
            found.append(f"it has {name}={before}" if now is None else
                         f"it does not have {name}={now}{f', but {before}' if before else ''}")
    return found


def mend(link: Started) -> str:
    """Return the command that ends a SuperLink, and which runs would end with it."""
    active = _runs_of(link)
    ended = {0: "no run is active in it", 1: "the run that is active in it would end too"}.get(
        active, f"the {active} runs that are active in it would end too")
    return f"end it with `kill {link.process}` ({ended}); the next `flwr run` starts another"


def _runs_of(link: Started) -> int:
    """Return how many runs a SuperLink has started that have not ended."""
    try:
        return sum(_is(each, "flwr-simulation") for each in psutil.Process(link.process).children(recursive=True))
    except psutil.Error:
        return 0


def is_silent() -> bool:
    """Return whether nothing answers at the SuperLink's address."""
    try:
        with urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5):
            return False
    except HTTPError:
        return False
    except OSError:
        return True


def _running(*words: str) -> Iterator[Started]:
    """Yield the processes with some words in their command."""
    for process in psutil.process_iter():
        if _is(process, *words) and (started := _started(process)):
            yield started


def _is(process: psutil.Process, program: str, *words: str) -> bool:
    """Return whether a process runs a Python program, with some words after it."""
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    names = [Path(part).name for part in command[:2]]
    is_run = names[:1] == [program] or (names[1:] == [program] and names[0].startswith("python"))  # not `vim FILE`
    return is_run and all(word in command for word in words)


def _started(process: psutil.Process) -> Started | None:
    """Return what a process was started with; None if it has ended."""
    try:
        environment = Path(process.cmdline()[0]).absolute().parents[1]
        user, when = process.username(), process.create_time()
    except (psutil.Error, IndexError):
        return None
    return Started(process.pid, user, when, environment, _folder(process), _settings(process))


def _folder(process: psutil.Process) -> Path | None:
    """Return the folder in which a process runs."""
    try:
        folder = Path(process.cwd())
    except (psutil.Error, OSError):
        return None
    return folder if folder.is_dir() else None


def _port(process: int) -> str | None:
    """Return the port at which a process looks for a SuperLink; None if that cannot be read."""
    try:
        return str(psutil.Process(process).environ().get(_PORT_VARIABLE, _USUAL_PORT))
    except (psutil.Error, OSError):
        return None


def _settings(process: psutil.Process) -> dict[str, str] | None:
    """Return the environment variables of a process that runs read."""
    try:
        return {name: value for name, value in process.environ().items()
                if name in _READ_BY_RUNS or name.startswith("FEDFAIR_")}
    except (psutil.Error, OSError):
        return None
