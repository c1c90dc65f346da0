"""`fedfair compare`, `run` and `sweep`.

`fedfair compare` and `fedfair run`.

`fedfair sweep`.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedfair.datasets.names import visible
from fedfair.protocol.fields import MOST_JOBS
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
from simulations.commands.terminal import READING, say, show, showing_progress, telling_if_stopped, telling_of_kept

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
    from simulations.plans.compare import experiments, in_parallel
    from simulations.plans.kept_runs import kept_runs
    from simulations.results.result import compared, save_comparison
    from simulations.results.run_folder import saved_comparison
    from simulations.settings.presets import suited

    names = names_of(strategies)
    settings = settings_of(set_, risk, dataset=dataset, csv=csv, label=label, group=group, missing=missing,
                           encoding=encoding, without=names_of(without) or None, target_epsilon=epsilon,
                           delta=delta, attribute_in_model=attribute_in_model)
    with showing_progress(READING):
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
            show(saved_comparison(out, planned), out, json)
            return
        with telling_of_kept(out, lambda: sum(map(kept.has, planned)), len(planned)), showing_progress() as on_round:
            results = (in_parallel(planned, on_round, jobs, kept) if engine == "local" and jobs != 1 else
                       run_comparison(planned, chosen, on_round=on_round, kept=kept))
        saved = save_comparison(results, described, out) if out is not None else None
    show(compared(results), saved, json)


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
    from simulations.settings.presets import suited

    settings = settings_of(set_, risk, dataset=dataset, csv=csv, label=label, group=group, missing=missing,
                           encoding=encoding, without=names_of(without) or None, target_epsilon=epsilon,
                           delta=delta, attribute_in_model=attribute_in_model)
    with showing_progress(READING):
        settings = suited(settings, preset, [strategy])
    planned = experiments([strategy], [seed], preset, settings)
    _run_one(planned[0], engine_of(engine, nodes, engine_set), out, checkpoint_every, json, track)


def _run_one(experiment: Experiment, engine: Engine, out: Path | None, every: int | None, json: bool,
             track: str | None = None) -> None:
    """Run, from a checkpoint if there is one, save, and print the result."""
    from simulations.engines.checkpoint import Checkpoint
    from simulations.engines.run import run as run_experiment
    from simulations.engines.tracking import tracking
    from simulations.results.result import compared

    checkpoint = None if out is None else Checkpoint(out, experiment.settings(), every)
    saved = checkpoint.read() if checkpoint else None
    if saved:
        say(f"{out} holds a checkpoint: going on after round {saved[0]}")
    name = f"{experiment.strategy}, seed {experiment.seed}"
    tracked = out.with_name(f"{out.name}-tracking") if out is not None else Path("tracking")
    followed = tracking(track, tracked, experiment) if track else nullcontext(lambda strategy, now: None)
    with telling_if_stopped(lambda: _kept(out)), showing_progress() as on_round, followed as watch:
        result = run_experiment(experiment, engine, checkpoint=checkpoint, watch=watch,
                                progress=lambda rounds, of: on_round(0, 1, name, rounds, of))
        saved_in = result.save(out) if out is not None else None
    show(compared([result]), saved_in, json)


def _kept(out: Path | None) -> str:
    """Say what a run that is stopped leaves."""
    from simulations.results.result_folder import CHECKPOINT

    if out is None:
        return "nothing is kept; with --out, a run can go on where it was stopped"
    if not (out / CHECKPOINT).is_file():
        return f"no round is kept in {out}; the same command begins anew"
    return f"{out} keeps a checkpoint, from which the same command goes on"


def sweep(
    config: Annotated[Path, typer.Argument(help="TOML file that describes the sweep.")],
    out: Annotated[Path, typer.Option(help="Folder of the results; trials finished there are not repeated.")],
    ray_address: Annotated[str | None, typer.Option(help="Address of a Ray cluster, auto for the one on this machine; "
                                                    "by default RAY_ADDRESS, or else a new cluster.")] = None,
    cpus: Annotated[int, typer.Option(min=1, help="Cores, and PyTorch threads, for each trial.")] = 1,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs for each trial; fractions are allowed.")] = 0,
) -> None:
    """Run data sets x strategies x seeds x settings on a Ray cluster; the same command resumes a stopped sweep.

    Example: fedfair sweep yang.toml --out out/yang, with datasets, strategies, seeds, preset, and tables settings and
    vary in yang.toml; a table search instead of vary looks for the best settings.
    """
    from simulations.plans.search import refuse_unmeasured
    from simulations.plans.sweep import Sweep, collect, prepare_folder, trials

    described = Sweep.read(config)
    planned = trials(described)
    if described.search is not None:
        refuse_unmeasured(described.search, next(iter(planned.values())))
    kept = prepare_folder(out, described)
    from simulations.engines.ray_workers import connect  # here, because importing Ray takes a second
    from simulations.plans.kept_runs import is_finished, refuse_changed
    from simulations.plans.trials import Resources, run_trials

    for name, made in planned.items():
        refuse_changed(out / "trials" / name, made)
    left = {name: made for name, made in planned.items() if not is_finished(out / "trials" / name)}
    console = Console(stderr=True)
    console.print(f"{len(planned)} trials, of which {len(planned) - len(left)} are finished"
                  + (f"; the sweep that was here had {kept}" if kept else ""), highlight=False)
    failed: dict[str, str] = {}
    if left:
        connect(ray_address)
        failed = run_trials(left, len(planned) - len(left), out / "trials", Resources(cpus, gpus), described.search)
    collect(described, out, failed)
    print(f"saved in {out}: summary.csv and trials.csv")
    for name, reason in failed.items():
        console.print(Text.assemble(("failed:", "red"), visible(f" {name}: {reason}", keep="\n")), soft_wrap=True)
    if failed:
        raise typer.Exit(1)
