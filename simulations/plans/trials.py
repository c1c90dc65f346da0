"""The trials of a sweep on Ray Tune: which remain, running them, and how they ended."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ray
import torch
from ray import tune
from ray._private.state import state
from ray.tune.schedulers import ASHAScheduler, MedianStoppingRule, TrialScheduler

from fedfair.datasets.names import visible
from fedfair.node.node import ClientError
from simulations.engines.checkpoint import Checkpoint
from simulations.engines.run import run
from simulations.plans.kept_runs import Reached, note_stopped
from simulations.plans.search import Search
from simulations.results.run_folder import RunFolder
from simulations.settings.experiment import Experiment
from strategies.server.rounds import Rounds

_FAILURES = 5  # restarts of a trial whose process or machine died


class Resources(NamedTuple):
    """What every trial gets: cores, which are also PyTorch's threads, and GPUs."""

    cpus: int = 1
    gpus: float = 0


def run_trials(left: Mapping[str, Experiment], finished: int, folder: Path, resources: Resources,
               search: Search | None = None) -> dict[str, str]:
    """Run the trials that are `left`, each into a folder of its own; return why some failed, by name.

    A trial whose process or machine dies is started again, and resumes from its last checkpoint; one that raises an
    error is not. `finished` is the number of trials of an earlier call. Needs a connection to a cluster. Raises
    `ValueError` if the cluster has no room for a trial, and `KeyboardInterrupt` if it is interrupted; results that
    exist by then are kept.
    """
    _refuse_too_large(resources)
    os.environ.update(TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1", RAY_CHDIR_TO_TRIAL_DIR="0", RAY_AIR_NEW_OUTPUT="0")
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "600")  # Tune's own checkpoints are not used
    configs = [{"name": name, "folder": str(folder.absolute() / name), "settings": made.settings(),
                "threads": resources.cpus, "here": os.getcwd(), "search": search.model_dump() if search else None}
               for name, made in left.items()]
    log = _Log(finished, finished + len(configs))
    tuner = tune.Tuner(
        tune.with_resources(_trial, {"cpu": resources.cpus, "gpu": resources.gpus}),
        param_space={"trial": tune.grid_search(configs)},
        tune_config=tune.TuneConfig(reuse_actors=True, scheduler=_scheduler(search)),
        run_config=tune.RunConfig(name="tune", storage_path=str(folder.absolute().parent / ".tune"), verbose=0,
                                  failure_config=tune.FailureConfig(max_failures=_FAILURES), callbacks=[log]))
    try:
        results = tuner.fit()
    finally:
        shutil.rmtree(folder.absolute().parent / ".tune", ignore_errors=True)  # it has error texts, which quote cells
    placed = zip(left, map(results.__getitem__, range(len(results))), strict=False)
    over = {name: result for name, result in placed  # ended by itself or its scheduler, not by an interruption of all
            if result.error is not None or (result.metrics or {}).get("done")}
    failed = {name: reason for name, result in over.items() if (reason := _failure(result, folder / name))}
    if len(over) < len(left):
        raise KeyboardInterrupt  # Tune catches the signal, and returns as if all trials were over
    return failed


def _refuse_too_large(resources: Resources) -> None:
    """Raise `ValueError` if no machine of the cluster has room for a trial, and no autoscaler can add one."""
    if not math.isfinite(resources.gpus):
        raise ValueError(f"gpus is {resources.gpus}: give a number, or a share of one, for each trial")
    as_client = ray.util.client.ray.is_connected()  # type: ignore[no-untyped-call]
    if as_client or state.get_max_resources_from_cluster_config() is not None:
        return  # a client of a cluster cannot ask for its autoscaler
    machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]  # type: ignore[no-untyped-call]
    for resource, each in (("CPU", resources.cpus), ("GPU", resources.gpus)):
        most = max(machine.get(resource, 0.0) for machine in machines)
        if each > most:
            raise ValueError(f"a trial with {each:g} {resource} does not fit into a Ray cluster that has {most:g} on "
                             "its largest machine: take a smaller share for each")


def _failure(result: tune.Result, folder: Path) -> str | None:
    """Return why a trial that is over failed, or None; leave a note in the folder of one that was stopped early."""
    metrics = result.metrics or {}
    if result.error is not None:
        return f"its process died {_FAILURES + 1} times: look for a lack of memory ({result.error})"
    if "error" in metrics:
        return str(metrics["error"])
    if metrics["percent"] < 100:
        note_stopped(folder, Reached(**{field: metrics[field] for field in Reached._fields}))
    elif not RunFolder(folder).is_finished:
        return f"its result is not in {folder.parent}: all machines must share this folder"
    return None


def _trial(config: dict[str, Any]) -> None:
    """Run one trial, in a process that may have run others before; report how it ended."""
    given = config["trial"]
    os.chdir(given["here"] if Path(given["here"]).is_dir() else ".")
    torch.set_num_threads(given["threads"])
    search = Search(**given["search"]) if given["search"] else None
    start = time.perf_counter()
    try:
        experiment, folder = Experiment(**given["settings"]), Path(given["folder"])
        result = run(experiment, checkpoint=Checkpoint(folder, experiment.settings()),
                     watch=lambda rounds, now: _report(rounds, now, search) if search else None)
        result.save(folder)
        ending: dict[str, Any] = {"percent": 100.0}
    except (ValueError, OSError, ClientError) as error:
        ending = {"error": str(error)}
    except Exception as error:  # a mistake in a method, which would be made again
        at = traceback.extract_tb(error.__traceback__)[-1]
        ending = {"error": f"{type(error).__name__}: {error} ({at.filename}, line {at.lineno})"}
    tune.report({"value": float("nan"), **ending, "seconds": time.perf_counter() - start})


def _report(rounds: Rounds, now: int, search: Search) -> None:
    """Tell the search where a trial stands, at the end of an evaluated round; the search may end the trial here."""
    wanted = ("valid", search.group, search.metric)
    values = [row["value"] for row in rounds.rows.latest(now)
              if (row["split"], row["group"], row["metric"]) == wanted]
    if values and now < rounds.rounds:
        ledger = rounds.ledger
        tune.report(Reached(100 * now / rounds.rounds, values[0], ledger.epsilon(), ledger.delta)._asdict())


def _scheduler(search: Search | None) -> TrialScheduler | None:
    """Make the scheduler that stops bad trials early, if any."""
    if search is None or search.scheduler == "none":
        return None
    if search.scheduler == "asha":
        return ASHAScheduler("percent", "value", search.mode, max_t=100, grace_period=search.grace)
    return MedianStoppingRule("percent", "value", search.mode, grace_period=search.grace)


class _Log(tune.Callback):
    """Callback that prints a line for every trial that ends, with the time left at this pace."""

    def __init__(self, done: int, total: int) -> None:
        self.done, self.total, self.before, self.start = done, total, done, time.time()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `tune.Callback`."""
        result = trial.last_result or {}
        ending = f"failed: {result['error']}" if "error" in result else "finished"
        ending = ending if result.get("percent", 100) == 100 else f"stopped at {result['percent']:.0f} %"
        self._line(trial, ending)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `tune.Callback`: the trial is not started again."""
        self._line(trial, "failed: its process died")

    def _line(self, trial: Any, ending: str) -> None:
        """Count and print."""
        self.done += 1
        minutes = (time.time() - self.start) / (self.done - self.before) * (self.total - self.done) / 60
        name = trial.config["trial"]["name"].rpartition("-")[0]
        print(visible(f"{self.done:>{len(str(self.total))}} of {self.total}  {name}: {ending}"),
              f" (about {minutes:.0f} min left)", file=sys.stderr, flush=True)
