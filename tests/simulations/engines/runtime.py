"""A SuperLink and SuperNodes, as a user starts them."""

from __future__ import annotations

import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.guard import started as started_by_tests
from tests.guard import wait_until

ONE_AT_A_TIME = pytest.mark.xdist_group("flower")
"""For tests that start Flower's programs without forking them.

Flower starts another process for a task if the first is not up after 30 s. Where several such tests share two cores,
processes are not up in time, and those that are started in their place make all of them slower.
"""


def superlink(port: int, environment: dict[str, str], cwd: Path, keys: Path | None = None,
              database: Path | None = None) -> subprocess.Popen[str]:
    """Start a SuperLink, named "own" in the environment's configuration, and wait until it answers.

    With a folder of `keys` it speaks TLS, and knows SuperNodes by theirs. What it knows is in memory, or in a
    `database`.
    """
    home, log = Path(environment["FLWR_HOME"]), cwd / "link.log"
    home.mkdir(exist_ok=True)
    secure = "insecure = true" if keys is None else f'root-certificates = "{keys}/ca.crt"'
    (home / "config.toml").write_text(f'[superlink.own]\naddress = "127.0.0.1:{port}"\n{secure}\n')
    options = ["--insecure"] if keys is None else [
        "--enable-supernode-auth", f"--ssl-ca-certfile={keys}/ca.crt", f"--ssl-certfile={keys}/server.crt",
        f"--ssl-keyfile={keys}/server.key"]
    options += [f"--database={database}"] if database else []
    with log.open("a") as output:
        started = subprocess.Popen(["flower-superlink", *options, "--port", str(port)], env=environment, cwd=cwd,
                                   stdout=output, stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: listens(port), started)
    return started


def kill_superlink(link: subprocess.Popen[str], port: int) -> None:
    """Kill a SuperLink, and wait until nobody listens at its port, and the server app that it started has ended."""
    link.kill()
    link.wait()
    wait_until(lambda: not listens(port) and not is_running("flwr-serverapp"))


def is_running(program: str) -> bool:
    """Return whether a program runs that this process started, or those that it started."""
    for process in started_by_tests():
        with suppress(psutil.Error):
            if any(Path(word).name == program for word in process.cmdline()):
                return True
    return False


def listens(port: int) -> bool:
    """Return whether somebody listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def supernode(number: int, superlink: int, port: int, environment: dict[str, str], log: Path, nodes: int = 3,
              cwd: Path | None = None, config: str = "", keys: Path | None = None) -> subprocess.Popen[str]:
    """Start one SuperNode of several, in a process group of its own; `config` is more of its node config.

    With a folder of `keys` it speaks TLS, and has the key "siteN".
    """
    options = ["--insecure"] if keys is None else [
        f"--root-certificates={keys}/ca.crt", f"--auth-supernode-private-key={keys}/site{number}"]
    with log.open("a") as output:
        return subprocess.Popen(
            ["flower-supernode", *options, "--superlink", f"127.0.0.1:{superlink}", "--port", str(port),
             "--node-config", f"partition-id={number} num-partitions={nodes} {config}".strip()],
            env=environment, cwd=cwd, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, text=True)

