"""How pytest is set up: a group's tests run in one process, and collecting prints the total."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


@pytest.mark.xdist_group("named")
def test_a_group_is_part_of_the_name_by_which_tests_are_handed_out(request: pytest.FixtureRequest) -> None:
    """Two Ray clusters would find each other. pytest-xdist 3.8 writes the group where pytest 9.2 no longer looks, so
    that every process would get tests of every group.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@named")


def test_collecting_prints_the_total() -> None:
    """A `-q` among the settings would make a second `-q` a third kind of output, without the total."""
    printed = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "--noconftest", __file__],
                             check=True, capture_output=True, text=True,
                             env={**os.environ, "PYTEST_ADDOPTS": ""}).stdout
    assert re.match(r"2 tests collected", printed.splitlines()[-1])
