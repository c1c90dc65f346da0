"""The same rounds in this program and in others: each a command that prints one line of JSON, milliseconds a round."""

from __future__ import annotations

import sys

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Environment of every command."""


def our_command(participants: int, cohort: int, rounds: int, workers: int = 0) -> list[str]:
    """Return the command that runs dp-fedavg here, on `workers` Ray actors, or in one process."""
    return [sys.executable, "-m", f"{__name__}.ours", "--participants", str(participants), "--cohort", str(cohort),
            "--rounds", str(rounds), "--workers", str(workers)]
