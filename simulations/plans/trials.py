"""The trials of a sweep on Ray Tune: which remain, running them, and how they ended."""

from __future__ import annotations

import logging
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
from simulations.engines.stacked import run_stacked, stacks
from simulations.plans.kept_runs import Reached, is_finished, note_stopped
from simulations.plans.search import Search
from simulations.results.run_folder import RunFolder
from simulations.settings.experiment import Experiment
from strategies.server.rounds import Rounds

log = logging.getLogger(__name__)

_FAILURES = 5  # restarts of a trial whose process or machine died


class Resources(NamedTuple):
    """What every trial gets: cores, which are also PyTorch's threads, and GPUs."""

    cpus: int = 1
    gpus: float = 0


def run_trials(left: Mapping[str, Experiment], finished: int, folder: Path, resources: Resources,
               search: Search | None = None) -> dict[str, str]:
    """Run the trials that are `left`, each into a folder of its own; return why some failed, by name.

    Those that stack are made together (`simulations.engines.stacked`), unless a search may stop some early. A trial
    whose process or machine dies is started again, and resumes from its last checkpoint, or anew if it is in a stack;
    one that raises an error is not. `finished` is the number of trials of an earlier call. Needs a connection to a
    cluster. Raises `ValueError` if the cluster has no room for a trial, and `KeyboardInterrupt` if it is interrupted;
    results that exist by then are kept.
    """
    _refuse_too_large(resources)
    os.environ.update(TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1", RAY_CHDIR_TO_TRIAL_DIR="0", RAY_AIR_NEW_OUTPUT="0")
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "600")  # Tune's own checkpoints are not used
    parts = _parts(left, folder, resources) if search is None else {(name,): False for name in left}
    configs = [{"trials": {name: left[name].settings() for name in part}, "stack": stack,
                "folder": str(folder.absolute()), "threads": resources.cpus, "here": os.getcwd(),
                "search": search.model_dump() if search else None}
               for part, stack in parts.items()]
    told = _Log(finished, finished + len(left))
    tuner = tune.Tuner(
        tune.with_resources(_trial, {"cpu": resources.cpus, "gpu": resources.gpus}),
        param_space={"trial": tune.grid_search(configs)},
        tune_config=tune.TuneConfig(reuse_actors=True, scheduler=_scheduler(search)),
        run_config=tune.RunConfig(name="tune", storage_path=str(folder.absolute().parent / ".tune"), verbose=0,
                                  failure_config=tune.FailureConfig(max_failures=_FAILURES), callbacks=[told]))
    try:
        results = tuner.fit()
    finally:
        shutil.rmtree(folder.absolute().parent / ".tune", ignore_errors=True)  # it has error texts, which quote cells
    placed = zip(parts, map(results.__getitem__, range(len(results))), strict=False)
    over = [(part, result) for part, result in placed  # ended by itself or its scheduler, not by an interruption of all
            if result.error is not None or (result.metrics or {}).get("done")]
    reasons = {name: _failure(result, name, folder / name) for part, result in over for name in part}
    failed = {name: reason for name, reason in reasons.items() if reason}
    if len(over) < len(parts):
        raise KeyboardInterrupt  # Tune catches the signal, and returns as if all trials were over
    return failed


def _parts(left: Mapping[str, Experiment], folder: Path, resources: Resources) -> dict[tuple[str, ...], bool]:
    """Return the names of trials that are made together, and whether they stack; one that was begun goes on alone."""
    begun = {name for name in left if (folder / name).exists()}
    new = [name for name in left if name not in begun]
    room = int(ray.cluster_resources().get("CPU", 1) // resources.cpus)  # type: ignore[no-untyped-call]
    together = stacks([left[name] for name in new], max(1, room))
    return {tuple(new[place] for place in part.places): part.stack for part in together} | {
        (name,): False for name in left if name in begun}


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


def _failure(result: tune.Result, name: str, folder: Path) -> str | None:
    """Return why a trial that is over failed, or None; leave a note in the folder of one that was stopped early."""
    metrics = result.metrics or {}
    if result.error is not None:
        return f"its process died {_FAILURES + 1} times: look for a lack of memory ({result.error})"
    if name in (errors := metrics.get("errors") or {}):
        return str(errors[name])
    if metrics["percent"] < 100:
        note_stopped(folder, Reached(**{field: metrics[field] for field in Reached._fields}))
    elif not RunFolder(folder).is_finished:
        return f"its result is not in {folder.parent}: all machines must share this folder"
    return None


def _trial(config: dict[str, Any]) -> None:
    """Run the trials of one part, in a process that may have run others before; report how they ended."""
    given = config["trial"]
    os.chdir(given["here"] if Path(given["here"]).is_dir() else ".")
    torch.set_num_threads(given["threads"])
    search = Search(**given["search"]) if given["search"] else None
    start, folder = time.perf_counter(), Path(given["folder"])
    left = {name: Experiment(**settings) for name, settings in given["trials"].items()
            if not is_finished(folder / name)}  # by this process, before it was started again
    errors = {}
    if not (given["stack"] and left and _together(left, folder)):
        for name, experiment in left.items():
            if (error := _alone(experiment, folder / name, search)) is not None:
                errors[name] = error
    tune.report({"value": float("nan"), "percent": 100.0, "errors": errors, "seconds": time.perf_counter() - start})


def _together(left: Mapping[str, Experiment], folder: Path) -> bool:
    """Make trials together, and say whether they could be; if one fails, they cannot."""
    try:
        results = run_stacked(list(left.values()))
    except Exception as error:  # what it is, the trial that is made by itself says
        log.warning("%d trials are made one by one, since together they fail: %s", len(left), error)
        return False
    for name, result in zip(left, results or (), strict=False):
        result.save(folder / name)
    return results is not None


def _alone(experiment: Experiment, folder: Path, search: Search | None) -> str | None:
    """Make a trial by itself, from its last checkpoint on, and return why it failed, or None."""
    try:
        result = run(experiment, checkpoint=Checkpoint(folder, experiment.settings()),
                     watch=lambda rounds, now: _report(rounds, now, search) if search else None)
        result.save(folder)
    except (ValueError, OSError, ClientError) as error:
        return str(error)
    except Exception as error:  # a mistake in a method, which would be made again
        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({at.filename}, line {at.lineno})"
    return None


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
        result, names = trial.last_result or {}, list(trial.config["trial"]["trials"])
        ending = "finished" if result.get("percent", 100) == 100 else f"stopped at {result['percent']:.0f} %"
        for name in names:
            error = (result.get("errors") or {}).get(name)
            self._line(name, f"failed: {error}" if error else ending)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `tune.Callback`: the trial is not started again."""
        for name in trial.config["trial"]["trials"]:
            self._line(name, "failed: its process died")

    def _line(self, trial: str, ending: str) -> None:
        """Count and print."""
        self.done += 1
        minutes = (time.time() - self.start) / (self.done - self.before) * (self.total - self.done) / 60
        name = trial.rpartition("-")[0]
        print(visible(f"{self.done:>{len(str(self.total))}} of {self.total}  {name}: {ending}"),
              f" (about {minutes:.0f} min left)", file=sys.stderr, flush=True)
