"""A small Ray cluster for the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """Start a cluster with two cores of this machine, for this process and its workers."""
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()
