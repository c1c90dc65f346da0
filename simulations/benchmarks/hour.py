"""Whether the memory of a SuperLink, its SuperNodes and their apps stays the same over an hour of rounds.

python -m simulations.benchmarks.hour [--minutes 60] [--out FILE.json]

A SuperLink and two SuperNodes with a file each are started as docs/tutorials/real-nodes.md says, without TLS, and
`flwr run` starts one run after another. The SuperLink keeps what it knows in memory, or, with --database, in a file.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore, Thread
from typing import Annotated, Any

import numpy as np
import pandas as pd
import psutil
import typer

from simulations.benchmarks.measuring import Figures, Out, Target, report
from simulations.commands.terminal import plain_errors

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


NODES = 2
FLAT = 8.0  # MiB an hour
_APP = Path(__file__).resolve().parents[2]
_SCHEMA = """source = "made up"
label = "ill"
group = "sex"
[ranges]
age = [18, 80]
[categories]
job = ["nurse", "clerk", "cook"]
sex = ["f", "m"]
ill = ["no", "yes"]
"""

Minutes = Annotated[float, typer.Option(min=0.1, help=f"How long; the first {WARM / 60:.0f} are told apart.")]
Port = Annotated[int, typer.Option(help="The SuperLink's port; the next ones are the SuperNodes'.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds of a run.")]
Hidden = Annotated[int, typer.Option(min=1, help="Width of both hidden layers: the size of a message.")]
Share = Annotated[float, typer.Option(min=0.05, help="Rest after runs until this share of a core is taken.")]
Database = Annotated[bool, typer.Option(help="Let the SuperLink keep what it knows in a file.")]


@plain_errors
def main(minutes: Minutes = 60.0, rounds: Rounds = 10, hidden: Hidden = 128, share: Share = 0.5, port: Port = 23_100,
         database: Database = False, out: Out = None) -> None:
    """Run for some minutes, watch the memory, and report it by process."""
    with TemporaryDirectory() as folder, deployment(Path(folder), port, database) as (environment, processes):
        watch = Watch(processes)
        end, done = time.monotonic() + 60 * minutes, 0
        with watch.going_on():
            while time.monotonic() < end:
                _flwr_run(environment, Path(folder), number=done, steps=rounds, hidden=f"[{hidden}, {hidden}]")
                done += 1
                typer.echo(f"{(time.monotonic() - watch.start) / 60:.1f} min, {done} runs: " + ", ".join(
                    f"{row['process']} {row['last']:.0f}" for row in watch.rows()))
                while time.monotonic() < end and share_of_a_core(processes, watch.start) > share:
                    time.sleep(1)
    rows = watch.rows()
    targets = [Target(f"{row['process']}: MiB an hour", float(row["MiB an hour"] or 0), FLAT) for row in rows
               if row["MiB an hour"] is not None]
    report(f"Resident memory in MiB over {minutes:g} minutes, {done} runs of {rounds} rounds", rows, targets, out)


@contextmanager
def deployment(folder: Path, port: int, database: bool) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """Start a SuperLink and SuperNodes in folders of their own, and end them by their process ids.

    Args:
        folder: An empty folder.
        port: Port of the SuperLink; the next are those of the SuperNodes.
        database: Whether the SuperLink keeps what it knows in a file.

    Yields:
        The environment for `flwr run`, and the process ids by name.
    """
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "FLWR_HOME": str(folder / "flwr"), "PATH": f"{binaries}:{os.environ['PATH']}",
                   "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "FLWR_TELEMETRY_ENABLED": "0",
                   "OMP_NUM_THREADS": "1"}
    (folder / "flwr").mkdir()
    (folder / "flwr" / "config.toml").write_text(f'[superlink.own]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    (folder / "study.toml").write_text(_SCHEMA)
    kept = ["--database", str(folder / "link.db")] if database else []
    started = {"SuperLink": _started(["flower-superlink", "--insecure", "--port", str(port), *kept], environment,
                                     folder / "server")}
    try:
        _await(port)
        for node in range(NODES):
            _records(300 + 100 * node, node, folder / f"site{node}")
            config = f'partition-id={node} num-partitions={NODES} data="people.csv"'
            words = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--port",
                     str(port + 1 + node), "--node-config", config]
            started[f"SuperNode {node}"] = _started(words, environment, folder / f"site{node}")
        yield environment, {name: process.pid for name, process in started.items()}
    finally:
        for process in reversed(started.values()):
            process.terminate()
            process.wait(60)


def _started(words: list[str], environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a program in a folder, which has its log."""
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("a") as log:
        return subprocess.Popen(words, env=environment, cwd=folder, stdout=log, stderr=log)  # noqa: S603


def _await(port: int) -> None:
    """Wait until somebody listens at a port; raise `TimeoutError` if nobody does within two minutes."""
    end = time.monotonic() + 120
    with socket.socket() as probe:
        while probe.connect_ex(("127.0.0.1", port)) != 0:
            if time.monotonic() > end:
                raise TimeoutError(f"nothing listens at port {port} after two minutes: see the log of the SuperLink")
            time.sleep(0.5)


def _records(records: int, seed: int, folder: Path) -> None:
    """Write a made-up file that is like the schema."""
    draws = np.random.default_rng(seed)
    table = pd.DataFrame({"age": draws.integers(18, 80, records), "job": draws.choice(["clerk", "cook"], records),
                          "sex": draws.choice(["f", "m"], records), "ill": draws.choice(["no", "yes"], records)})
    folder.mkdir()
    table.to_csv(folder / "people.csv", index=False)


def _flwr_run(environment: dict[str, str], folder: Path, number: int, **settings: Any) -> None:
    """Run dpsgd-f over the nodes, with an epoch in each round; raise `RuntimeError` if that fails."""
    asked = {"partition": "nodes", "schema_file": str(folder / "study.toml"), "strategy": "dpsgd-f", "trust": "local",
             "sync": "epoch", "model": "mlp", "batch_size": 50, "noise_multiplier": 1.0,
             "out": str(folder / "results" / str(number)), **settings}
    config = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in asked.items())
    done = subprocess.run(["flwr", "run", str(_APP), "own", "--stream", "--run-config", config],  # noqa: S603, S607
                          env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if "Results are in" not in done.stdout + done.stderr:
        raise RuntimeError(f"run {number} failed: {(done.stdout + done.stderr)[-2000:]}")


if __name__ == "__main__":
    typer.run(main)
