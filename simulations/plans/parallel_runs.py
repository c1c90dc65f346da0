"""The runs of a comparison in several processes of this machine, one thread each.

Two threads of one process wait for each other in busy loops where the machine has other work; processes do not.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from torch import Tensor

from fedfair.accounting import Ledger
from simulations.engines.run import refuse_unfit, run
from simulations.engines.worker_processes import in_processes
from simulations.plans.compare import OnRound
from simulations.plans.kept_runs import KeptRuns
from simulations.results.result import Result
from simulations.results.results import Results
from simulations.settings.experiment import Experiment
from strategies.server.front import MeasuredFront
from strategies.server.threshold_search import Threshold, ThresholdSearch


class Finished(NamedTuple):
    """What comes back from the process of a run: all but what this process can make itself."""

    metrics: pd.DataFrame
    ledger: Ledger
    state: Mapping[str, Tensor]
    search: ThresholdSearch
    threshold: Threshold | None
    front: MeasuredFront | None


def in_parallel(planned: Sequence[Experiment], on_round: OnRound = lambda *_: None, jobs: int | None = None,
                kept: KeptRuns | None = None) -> Results:
    """Run experiments in processes of this machine, after checking that the settings of all fit their data.

    Args:
        planned: What `simulations.plans.compare.experiments` returns.
        on_round: Called when a run ends; see `OnRound`.
        jobs: Number of processes; None for one a processor.
        kept: Runs that are not made again, and to which those that end are added; None for none.

    Returns:
        The results, in the order of `planned`.

    Raises:
        ValueError: If settings do not fit their data; like all that `simulations.engines.run.run` raises.
    """
    refuse_unfit(planned)

    def make(missing: Sequence[Experiment]) -> Iterator[tuple[int, Result]]:
        """Make runs side by side."""
        processes = min(jobs or _processors(), len(missing))
        runs = in_processes(_finished, missing, processes) if missing else iter(())
        for done, (place, finished) in enumerate(runs, 1):
            yield place, _result(missing[place], pickle.loads(finished))  # noqa: S301 - from our own process
            on_round(done, len(missing), f"{processes} runs at a time", 0, 1)

    return (kept or KeptRuns()).complete(planned, make)


def _processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finished(experiment: Experiment) -> bytes:
    """Run one experiment in this process; by value, since shared memory ends with the process that made it."""
    result = run(experiment)
    assert result.search is not None
    return pickle.dumps(Finished(result.metrics, result.ledger, result.model.state_dict(), result.search,
                                 result.threshold, result.front))


def _result(experiment: Experiment, finished: Finished) -> Result:
    """Return the result of a run in another process."""
    task = finished.search.task  # with what private preprocessing learned
    model = task.build_model()
    model.load_state_dict(finished.state)
    return Result(experiment, task.data(), finished.metrics, finished.ledger, model, finished.search,
                  finished.threshold, finished.front)
