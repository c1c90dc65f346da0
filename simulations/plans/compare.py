"""Several strategies on the same data, seeds and splits: runs that stack together, others one after the other.

Side by side they are in processes of one thread each: threads of one process wait for each other, processes do not.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import pandas as pd
from torch import Tensor

from fedfair.accounting import Ledger
from fedfair.node.node import ClientError
from simulations.engines.engines import Engine, make_engine
from simulations.engines.run import Progress, refuse_unfit, run
from simulations.engines.stacked import Part, by_themselves, run_stacked, stacks
from simulations.engines.worker_processes import Item, Output, in_processes
from simulations.plans.kept_runs import RunFolders
from simulations.results.notebook import bar_of_runs, in_notebook
from simulations.results.result import Result, Results
from simulations.settings.experiment import Experiment, SettingsError
from simulations.settings.presets import for_strategy, is_own, merged, preset
from strategies.server.releases.front import MeasuredFront
from strategies.server.releases.threshold_search import Threshold, ThresholdSearch

OnRound = Callable[[int, int, str, int, int], None]
"""Called with the runs done, all runs, the current run's name, its rounds done and all its rounds."""


def experiments(strategies: Sequence[str], seeds: Sequence[int], preset_name: str | None,
                settings: Mapping[str, Any]) -> list[Experiment]:
    """Return the experiments of a comparison, all validated.

    Args:
        strategies: Names of strategies and combinations, each once.
        seeds: Random seeds; every strategy is run with each.
        preset_name: Published settings (`fedfair compare --help` lists them), or None for those named like the data
            set. A `csv` file gets only the settings that a preset has for all data.
        settings: Settings that win over the preset. A key "STRATEGY.key" is for one strategy, "options.key" for a
            strategy's own option.

    Returns:
        The experiments by strategy, then by seed.

    Raises:
        SettingsError: If a setting is not allowed; the message names its strategy.
        ValueError: If there is no such preset.

    Examples:
        >>> planned = experiments(["sgd", "dpsgd"], [0, 1], preset_name=None, settings={"dpsgd.clip_norm": 2.0})
        >>> [(each.strategy, each.seed, each.clip_norm) for each in planned]
        [('sgd', 0, 1.0), ('sgd', 1, 1.0), ('dpsgd', 0, 2.0), ('dpsgd', 1, 2.0)]
    """
    if not strategies:
        raise SettingsError("no strategy was named: name one or several, for example sgd,dpsgd")
    if len(set(strategies)) < len(strategies):
        raise SettingsError(f"a strategy is named twice among {', '.join(strategies)}: name each once")
    made, refused = [], {}
    for strategy in strategies:
        chosen = for_strategy(settings, strategy, strategies)
        dataset = None if is_own(chosen) else str(chosen.get("dataset", "digits"))
        layers = merged(preset(preset_name, dataset, strategy), chosen, {"strategy": strategy})
        try:
            made += [Experiment(**layers, seed=seed) for seed in seeds]
        except SettingsError as error:
            refused[strategy] = str(error)
    if refused:
        raise SettingsError(_of_each(refused, strategies))
    return made


def _of_each(refused: Mapping[str, str], strategies: Sequence[str]) -> str:
    """Return what is wrong with each strategy's settings; once, if it is the same for all of them."""
    reasons = set(refused.values())
    if len(reasons) == 1 and len(refused) == len(strategies):
        return reasons.pop()
    return "; ".join(f"{strategy}: {error}" for strategy, error in refused.items())


def compare(planned: Sequence[Experiment], engine: str | Engine = "local", nodes: int | None = None,
            on_round: OnRound | None = None, kept: RunFolders | None = None) -> Results:
    """Run experiments one after the other, after checking that the settings of all fit their data.

    Args:
        planned: What `experiments` returns.
        engine: Name of an engine (see `simulations.engines.engines.ENGINES`), or an engine with settings.
        nodes: Number of Flower nodes that host the clients; None for the engine's own choice.
        on_round: Called after every round with the progress of all runs (see `OnRound`); by default a bar in a
            notebook, and nothing elsewhere.
        kept: Runs that are not made again, and to which those that end are added; None for none.

    Returns:
        The results, in the order of `planned`: a list that notebooks show as tables.

    Raises:
        ValueError: If settings do not fit their data; like all that `simulations.engines.run.run` raises.

    Examples:
        >>> planned = experiments(["sgd", "dpsgd"], [0], None, {"steps": 2, "hidden": [4], "accountant": "rdp"})
        >>> [(result.experiment.key.name, result.ledger.guarantee) for result in compare(planned)]
        [('sgd/seed-0', 'none'), ('dpsgd/seed-0', 'simulated')]
    """
    chosen = make_engine(engine, nodes)
    refuse_unfit(planned)
    if on_round is None:
        on_round = bar_of_runs() if in_notebook() else lambda *_: None
    told = on_round
    alone, together = partial(run, engine=chosen), stacks if chosen == make_engine("local") else by_themselves
    return (kept or RunFolders()).complete(
        planned, lambda missing: as_they_end(_itself, missing, missing, together(missing), told, alone=alone))


def _itself(item: Experiment, ended: Ended) -> Result:
    """Return the result alone."""
    return ended.result


def following(planned: Sequence[Experiment], on_round: OnRound) -> Iterator[tuple[Experiment, Progress]]:
    """Yield each experiment with a `Progress` that reports to `on_round` how far all of them are.

    Runs on several data sets are named with theirs.
    """
    for done, experiment in enumerate(planned):
        yield experiment, partial(on_round, done, len(planned), _name_of(planned, [done]))


def _name_of(planned: Sequence[Experiment], places: Sequence[int]) -> str:
    """Return what the runs at some places are called while they go on."""
    first = planned[places[0]]
    several = len({experiment.dataset for experiment in planned}) > 1
    name = f"{len(places)} runs together" if len(places) > 1 else f"{first.strategy}, seed {first.seed}"
    return f"{first.dataset}, {name}" if several else name


class Ended(NamedTuple):
    """A run that has ended: its result, and the seconds that it took, its share of those of a stack."""

    result: Result
    seconds: float


class Alone(Protocol):
    """Makes one run by itself."""

    def __call__(self, experiment: Experiment, *, progress: Progress) -> Result:
        """Return the result of an experiment, and report how far it is."""
        ...


def as_they_end(keep: Callable[[Item, Ended], Output], items: Sequence[Item], runs: Sequence[Experiment],
                parts: Sequence[Part], on_round: OnRound, jobs: int = 1, alone: Alone = run
                ) -> Iterator[tuple[int, Output]]:
    """Make a run for each item, and yield the item's place with what is kept of it, in the order in which they end.

    Args:
        keep: What is kept of an item's run.
        items: What the runs are made for; picklable, like `keep` and `alone`, for several jobs.
        runs: The experiment of each item.
        parts: Which runs are made together (`simulations.engines.stacked.stacks`).
        on_round: Told how far all runs are.
        jobs: Number of processes, with one thread each; with one, the runs are made in this process.
        alone: How a run is made that is by itself.
    """
    work = partial(_made, keep, alone)
    given = [_Given(part.stack, [items[at] for at in part.places], [runs[at] for at in part.places]) for part in parts]
    done = 0
    if jobs == 1:
        for part, one in zip(parts, given, strict=True):
            told = partial(_tell, on_round, done, len(part.places), len(runs), _name_of(runs, part.places))
            yield from zip(part.places, work(one, told), strict=True)
            done += len(part.places)
        return
    for number, outputs in in_processes(partial(_all_made, work), given, jobs):
        yield from zip(parts[number].places, outputs, strict=True)
        done += len(parts[number].places)
        on_round(done, len(runs), f"{min(jobs, len(parts))} processes", 0, 1)


def _tell(on_round: OnRound, done: int, together: int, runs: int, name: str, rounds: int, of: int) -> None:
    """Report how far runs are that are made together: their rounds count one run after the other."""
    made = together * rounds
    whole = min(made // of, together - 1)
    on_round(done + whole, runs, name, made - whole * of, of)


class _Given(NamedTuple):
    """A part's items and their runs, and whether they stack."""

    stack: bool
    items: Sequence[Any]
    runs: Sequence[Experiment]


def _made(keep: Callable[[Item, Ended], Output], alone: Alone, part: _Given, progress: Progress = lambda *_: None
          ) -> Iterator[Output]:
    """Make the runs of some items, together if they stack, and yield what is kept of each.

    Where one of a stack fails, each is made by itself, so that those before it are kept.
    """
    began, together = perf_counter(), None
    if part.stack:
        with suppress(ClientError):
            together = run_stacked(part.runs, progress)
    took = (perf_counter() - began) / len(part.runs)
    for item, result in zip(part.items, together or (), strict=together is not None):
        yield keep(item, Ended(result, took))
    for item, made in zip(part.items, part.runs, strict=True) if together is None else ():
        began = perf_counter()
        result = alone(made, progress=progress)
        yield keep(item, Ended(result, perf_counter() - began))


def _all_made(work: Callable[..., Iterator[Output]], part: _Given) -> list[Output]:
    """Do the same in a process of its own, and return all at once."""
    return list(work(part))


class Finished(NamedTuple):
    """What comes back from the process of a run: all but what this process can make itself."""

    metrics: pd.DataFrame
    ledger: Ledger
    state: Mapping[str, Tensor]
    search: ThresholdSearch
    threshold: Threshold | None
    front: MeasuredFront | None


def in_parallel(planned: Sequence[Experiment], on_round: OnRound = lambda *_: None, jobs: int | None = None,
                kept: RunFolders | None = None) -> Results:
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
        several = jobs or _processors()
        for place, finished in as_they_end(_finished, missing, missing, stacks(missing, several), on_round, several):
            yield place, _result(missing[place], pickle.loads(finished))  # noqa: S301 - from our own process

    return (kept or RunFolders()).complete(planned, make)


def _processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finished(experiment: Experiment, ended: Ended) -> bytes:
    """Return a run by value, since shared memory ends with the process that made it."""
    result = ended.result
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
