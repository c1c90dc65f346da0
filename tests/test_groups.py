"""Tests of one `xdist_group` run in one process: two Ray clusters would find each other."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("named")
def test_a_group_is_part_of_the_name_by_which_tests_are_handed_out(request: pytest.FixtureRequest) -> None:
    """pytest-xdist 3.8 writes it where pytest 9.2 no longer looks, so that every process would get tests of every
    group.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@named")
