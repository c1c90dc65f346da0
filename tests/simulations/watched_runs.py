"""Runs that a test watches or forbids, however a plan makes them: by themselves, or as one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from simulations.engines.run import run
from simulations.engines.stacked import run_stacked
from simulations.results.result import Result
from simulations.settings.experiment import Experiment

ALONE = ("plans.compare", "plans.curves", "reproductions.request")


def watch_runs(monkeypatch: pytest.MonkeyPatch, begin: Callable[[Experiment], object]) -> None:
    """Call `begin` with each experiment that is run from now on, before it is."""

    def alone(experiment: Experiment, *given: Any, **named: Any) -> Result:
        """Make one run."""
        begin(experiment)
        return run(experiment, *given, **named)

    def together(planned: Sequence[Experiment], *given: Any) -> list[Result] | None:
        """Make a stack of runs."""
        for experiment in planned:
            begin(experiment)
        return run_stacked(planned, *given)

    for module in ALONE:
        monkeypatch.setattr(f"simulations.{module}.run", alone)
    monkeypatch.setattr("simulations.plans.compare.run_stacked", together)


def forbid_runs(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Fail if anything is run from now on."""
    watch_runs(monkeypatch, lambda _: pytest.fail(why))
