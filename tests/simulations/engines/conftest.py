"""A small Ray cluster, and Flower's own runtime, for the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.guard import started
from tests.ports import free_ports


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """Start a cluster with two cores of this machine, for this process and its workers."""
    import ray

    start_cluster()
    yield
    ray.shutdown()


def start_cluster() -> None:
    """Start a cluster, in place of one that an engine of another test started."""
    import ray

    ray.shutdown()
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Provide the environment of Flower's programs for the test: a home and ports of their own.

    What they leave running, as `flwr run` leaves its SuperLink, is ended after the test.
    """
    binaries, before = str(Path(sys.executable).parent), set(started())
    http, control = free_ports(2)
    yield {**os.environ, "FLWR_HOME": str(tmp_path / "flwr"), "PATH": f"{binaries}:{os.environ['PATH']}",
           "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "FLWR_TELEMETRY_ENABLED": "0",
           "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http), "FLWR_LOCAL_CONTROL_API_PORT": str(control),
           "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5", "RAY_ADDRESS": "local"}
    for process in set(started()) - before:
        if "FLWR_HOME" in environment_of(process):
            process.terminate()


def environment_of(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process; an empty one if it has ended."""
    try:
        return process.environ()
    except psutil.Error:
        return {}


@pytest.fixture
def deployment(flower: dict[str, str], forked: Path) -> dict[str, str]:
    """Provide the environment of a SuperLink and its SuperNodes, whose many programs are forked."""
    return {**flower, "PATH": f"{forked}:{flower['PATH']}"}
