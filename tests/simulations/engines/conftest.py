"""A small Ray cluster, and Flower's own runtime, for the tests."""

from __future__ import annotations

import faulthandler
import itertools
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """Start a cluster with two cores of this machine, for this process and its workers."""
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Provide the environment of a SuperLink for the test, which is ended afterwards by its process id.

    The test starts up to some thirty processes, each with PyTorch: it has a quarter of an hour on a busy machine.
    """
    faulthandler.dump_traceback_later(900, exit=True, file=sys.__stderr__)
    binaries = str(Path(sys.executable).parent)
    own = tempfile.mkdtemp(prefix="ray")  # short, for the names of its sockets
    http, control = free_ports(2)
    environment = {**os.environ, "FLWR_HOME": str(tmp_path / "flwr"), "PATH": f"{binaries}:{os.environ['PATH']}",
                   "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "FLWR_TELEMETRY_ENABLED": "0",
                   "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http), "FLWR_LOCAL_CONTROL_API_PORT": str(control),
                   "RAY_ADDRESS": "local", "RAY_TMPDIR": own}  # its Ray and those of other tests are not to meet
    yield environment
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"FLWR_HOME={tmp_path / 'flwr'}".encode() in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours:
            os.kill(int(process.name), signal.SIGTERM)
    shutil.rmtree(own, ignore_errors=True)


PORTS = itertools.count(20_000 + 2_000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw5")[2:]) + os.getpid() % 1_000)
"""Ports of this process: other tests' processes have others, Ray's workers have those below, and the system gives none
of them to anybody."""


def free_ports(count: int) -> list[int]:
    """Return unused ports, each of them once."""
    return list(itertools.islice(filter(is_free, PORTS), count))


def is_free(port: int) -> bool:
    """Return whether nobody listens at a port."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0
