"""`fedfair compare` and `fedfair run`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfair.protocol.bounds import MOST_JOBS
from simulations.commands.options import (
    Attribute,
    Csv,
    DatasetName,
    Delta,
    Encoding,
    EngineName,
    EngineSet,
    Epsilon,
    Every,
    Group,
    Json,
    Label,
    Missing,
    Nodes,
    Out,
    Preset,
    Risk,
    Seed,
    Seeds,
    Set,
    StrategyName,
    StrategyNames,
    Track,
    Without,
    engine_of,
    names_of,
    settings_of,
)
from simulations.commands.progress import showing_progress
from simulations.commands.terminal import say, show, telling_of_kept

if TYPE_CHECKING:
    from simulations.engines.engines import Engine
    from simulations.settings.experiment import Experiment

_OPENING = "sgd,dpsgd,dpsgd-f,dpsgd-global-adapt"


def compare(
    dataset: DatasetName = None,
    strategies: StrategyNames = _OPENING,
    preset: Preset = None,
    seeds: Seeds = 3,
    engine: EngineName = "local",
    nodes: Nodes = None,
    engine_set: EngineSet = [],  # noqa: B006 - Typer copies it
    set_: Set = [],  # noqa: B006 - Typer copies it
    risk: Risk = [],  # noqa: B006 - Typer copies it
    csv: Csv = None,
    label: Label = None,
    group: Group = None,
    attribute_in_model: Attribute = None,
    missing: Missing = None,
    encoding: Encoding = None,
    without: Without = "",
    epsilon: Epsilon = None,
    delta: Delta = None,
    out: Out = None,
    jobs: Annotated[int | None, typer.Option(min=1, max=MOST_JOBS, help="Runs at a time under the engine local, a "
                                             "process with one thread each; by default one a processor.")] = None,
    json: Json = False,
) -> None:
    """Compare strategies on one data set; without arguments, on the embedded digits.

    Example: fedfair compare --dataset adult --strategies sgd,dpsgd,dpsgd-f --preset yang2024 --out out/adult
    """
    from simulations.plans.compare import compare as run_comparison
    from simulations.plans.compare import experiments
    from simulations.plans.kept_runs import kept_runs
    from simulations.plans.parallel_runs import in_parallel
    from simulations.results.outcome import outcome_of, read_outcome
    from simulations.results.result import save_comparison
    from simulations.settings.own_data import suited

    names = names_of(strategies)
    settings = settings_of(set_, risk, dataset=dataset, csv=csv, label=label, group=group, missing=missing,
                           encoding=encoding, without=names_of(without) or None, target_epsilon=epsilon,
                           delta=delta, attribute_in_model=attribute_in_model)
    settings = suited(settings, preset, names)
    planned = experiments(names, list(range(seeds)), preset, settings)
    chosen = engine_of(engine, nodes, engine_set)
    if len(planned) == 1:
        _run_one(planned[0], chosen, out, None, json)
        return
    described = {"strategies": names, "seeds": list(range(seeds)), **({"preset": preset} if preset else {}),
                 "settings": settings}
    with kept_runs(out, described) as kept:
        if out is not None and kept.are_done(planned):
            say(f"{out} holds this comparison, finished: nothing is run again")
            show(read_outcome(out, planned), out, json)
            return
        with telling_of_kept(out, lambda: sum(map(kept.has, planned)), len(planned)), showing_progress() as on_round:
            results = (in_parallel(planned, on_round, jobs, kept) if engine == "local" and jobs != 1 else
                       run_comparison(planned, chosen, on_round=on_round, kept=kept))
        saved = save_comparison(results, described, out) if out is not None else None
    show(outcome_of(results), saved, json)


def run(
    dataset: DatasetName = None,
    strategy: StrategyName = "dpsgd-f",
    preset: Preset = None,
    seed: Seed = 0,
    engine: EngineName = "local",
    nodes: Nodes = None,
    engine_set: EngineSet = [],  # noqa: B006 - Typer copies it
    set_: Set = [],  # noqa: B006 - Typer copies it
    risk: Risk = [],  # noqa: B006 - Typer copies it
    csv: Csv = None,
    label: Label = None,
    group: Group = None,
    attribute_in_model: Attribute = None,
    missing: Missing = None,
    encoding: Encoding = None,
    without: Without = "",
    epsilon: Epsilon = None,
    delta: Delta = None,
    out: Out = None,
    checkpoint_every: Every = None,
    track: Track = None,
    json: Json = False,
) -> None:
    """Run one strategy once; with --out, the same command resumes a run that was stopped.

    Example: fedfair run --dataset adult --strategy dpsgd-f --set epochs=5 --set options.max_bound=4
    """
    from simulations.plans.compare import experiments
    from simulations.settings.own_data import suited

    settings = settings_of(set_, risk, dataset=dataset, csv=csv, label=label, group=group, missing=missing,
                           encoding=encoding, without=names_of(without) or None, target_epsilon=epsilon,
                           delta=delta, attribute_in_model=attribute_in_model)
    settings = suited(settings, preset, [strategy])
    planned = experiments([strategy], [seed], preset, settings)
    _run_one(planned[0], engine_of(engine, nodes, engine_set), out, checkpoint_every, json, track)


def _run_one(experiment: Experiment, engine: Engine, out: Path | None, every: int | None, json: bool,
             track: str | None = None) -> None:
    """Run, from a checkpoint if there is one, save, and print the result."""
    from simulations.engines.checkpoint import Checkpoint
    from simulations.engines.run import run as run_experiment
    from simulations.engines.tracking import tracking
    from simulations.results.outcome import outcome_of

    checkpoint = None if out is None else Checkpoint(out, experiment.settings(), every)
    saved = checkpoint.read() if checkpoint else None
    if saved:
        say(f"{out} holds a checkpoint: going on after round {saved[0]}")
    name = f"{experiment.strategy}, seed {experiment.seed}"
    tracked = out.with_name(f"{out.name}-tracking") if out is not None else Path("tracking")
    followed = tracking(track, tracked, experiment) if track else nullcontext(lambda strategy, now: None)
    with showing_progress() as on_round, followed as watch:
        result = run_experiment(experiment, engine, checkpoint=checkpoint, watch=watch,
                                progress=lambda rounds, of: on_round(0, 1, name, rounds, of))
    show(outcome_of([result]), result.save(out) if out is not None else None, json)
