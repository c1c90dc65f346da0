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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from simulations.benchmarks.report import Out, Target, report
from simulations.benchmarks.resident import WARM, Watch, share_of_a_core
from simulations.commands.terminal import plain_errors

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
