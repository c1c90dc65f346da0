"""The guard against tests that hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard import IDLE, LITTLE, MOST, Guard

ROOT = Path(__file__).resolve().parents[1]
HANGING = """
import subprocess, sys, time
from tests import guard
guard._TICK, guard.IDLE, guard.GRACE = 0.1, 0.5, 0.5
watching = guard.Guard()
watching.start()
with watching.over("this test"):
    {waits}
    print("was let go")
"""


@pytest.mark.parametrize(("rate", "hangs"), [(0.0, True), (0.9 * LITTLE / IDLE, True), (1.1 * LITTLE / IDLE, False)])
def test_a_test_hangs_that_hardly_computes_for_ten_minutes(rate: float, hangs: bool) -> None:
    guard = Guard()
    found = [guard.hangs(now, 100 + rate * now) for now in range(0, 3 * int(IDLE), 5)]
    assert [bool(why) for why in found] == [hangs and now >= IDLE for now in range(0, 3 * int(IDLE), 5)]


def test_a_test_that_waits_after_it_has_computed_has_ten_minutes_from_then_on() -> None:
    guard = Guard()
    spent = [min(now, 400.0) for now in range(0, 1200, 5)]
    first = next(place for place, seconds in enumerate(spent) if guard.hangs(5.0 * place, seconds))
    assert 5 * first == pytest.approx(400 + IDLE - LITTLE, abs=5)


def test_a_test_hangs_that_computes_without_end() -> None:
    guard = Guard()
    assert not guard.hangs(1.0, MOST)
    assert guard.hangs(2.0, MOST + 1) == f"it has computed for {MOST + 1:.0f} seconds"


@pytest.mark.parametrize(("waits", "code", "said", "told"), [
    ("subprocess.run([sys.executable, '-c', 'import time; time.sleep(10**6)'])", 0, "was let go\n", ""),
    ("time.sleep(10**6)", 1, "", "this test hangs: it has computed for 0 of ")])
def test_what_a_hanging_test_started_is_killed_and_then_its_process(waits: str, code: int, said: str, told: str
                                                                    ) -> None:
    done = subprocess.run([sys.executable, "-c", HANGING.format(waits=waits)], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout) == (code, said), done.stderr
    assert told in done.stderr
