"""Independent work in several processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from simulations.processes import in_processes


def fail_at_first(path: Path) -> None:
    time.sleep(0.01)
    path.touch()
    if path.name == "0":
        raise ValueError("the first one fails")


@pytest.mark.slow
def test_what_is_left_is_not_begun_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the first one fails"):
        list(in_processes(fail_at_first, [tmp_path / str(number) for number in range(1000)], 1))
    assert 1 <= len(list(tmp_path.iterdir())) < 1000


@pytest.mark.slow
def test_every_item_has_its_own_result() -> None:
    assert dict(in_processes(abs, [-3, 2, -1], 2)) == {0: 3, 1: 2, 2: 1}
