"""The command `fedfair`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedfair.datasets import DATASETS
from fedfair.datasets.columns import tidied, understand
from fedfair.datasets.table import read_csv
from fedfair.host import ClientError
from fedfair.task import Task
from simulations.as_json import as_json
from simulations.audit_report import audit_table, audits
from simulations.benchmarks.timing import write_json
from simulations.checkpoint import Checkpoint
from simulations.compare import compare as run_comparison
from simulations.compare import experiments
from simulations.curves import curves, save_curves
from simulations.engines import ENGINES, Engine, make_engine
from simulations.experiment import Experiment
from simulations.ledger_table import ledger_table, read_ledgers
from simulations.presets import preset_names
from simulations.reproductions.fair_fight import fair_fight
from simulations.reproductions.markdown import sentence
from simulations.reproductions.published import names as published_names
from simulations.reproductions.tables import reproduce as reproduce_table
from simulations.reproductions.tuning import NAME as FAIR_FIGHT
from simulations.reproductions.yang_curves import NAME as YANG_CURVES
from simulations.reproductions.yang_curves import yang_curves
from simulations.result import Result, refuse_other, save_comparison
from simulations.run import run as run_experiment
from simulations.sweep import Sweep, prepare_folder, trials
from simulations.table import columns_table, results_table
from simulations.tracking import TRACKERS, tracking
from simulations.values import pairs
from strategies import COMBINATIONS, STRATEGIES

_OPENING = "sgd,dpsgd,dpsgd-f,dpsgd-global-adapt"

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False,
                  help="What does each group pay for privacy, and which method closes the gap?",
                  epilog="Exit codes: 0 done; 1 an epsilon was refuted, or a trial failed; 2 something given was "
                         "wrong: one sentence says what. FEDFAIR_LOG=INFO shows the log of Flower.")
data = typer.Typer(no_args_is_help=True, help="Data sets: what there is, fetching, describing, checking a file.")
app.add_typer(data, name="data")

P = ParamSpec("P")


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """The names that begin as what was typed so far, or as its part behind the last comma; for the shell."""
    def complete(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(begun)]

    return complete


Preset = Annotated[str | None, typer.Option(help=f"Published settings: {', '.join(preset_names())}.",
                                            autocompletion=completing(preset_names()))]
Set = Annotated[list[str], typer.Option("--set", help="A setting, key=value; STRATEGY.key=value for one strategy, "
                                        "options.key=value for a strategy's own options.")]
Out = Annotated[Path | None, typer.Option(help="Folder to save the results in.")]
EngineName = Annotated[str, typer.Option(help=f"Where clients run: {', '.join(ENGINES)}.",
                                         autocompletion=completing(ENGINES))]
DatasetName = Annotated[str, typer.Option(help=f"One of {', '.join(DATASETS)}.", autocompletion=completing(DATASETS))]
StrategyName = Annotated[str, typer.Option(help="Its name.", autocompletion=completing([*STRATEGIES, *COMBINATIONS]))]
StrategyNames = Annotated[str, typer.Option(help="Names, separated by commas.",
                                            autocompletion=completing([*STRATEGIES, *COMBINATIONS]))]
EngineSet = Annotated[list[str], typer.Option("--engine-set", help="A setting of the engine, key=value; for ray: "
                                              "address, cpus, gpus, threads, timeout, restarts.")]
Nodes = Annotated[int | None, typer.Option(min=1, help="Flower nodes that host the clients; by default one, two under "
                                           "Flower, and as many as there is room for on Ray.")]
Every = Annotated[int | None, typer.Option(min=1, help="Rounds between checkpoints in the folder --out, from which the "
                                           "same command goes on if it was stopped; by default 100 steps, or 1 epoch.")]
Track = Annotated[str | None, typer.Option(help=f"Follow the run in one of {', '.join(TRACKERS)}: in the "
                                           "folder OUT-tracking, or tracking without --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of the table.")]
Csv = Annotated[Path | None, typer.Option(help="A file of your own instead of a data set.")]
Column = Annotated[str | None, typer.Option(help="Column of the file.")]


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose expected errors are one sentence and exit code 2, without a traceback."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (ValueError, OSError, ClientError) as error:
            Console(stderr=True).print(f"[red]Error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None

    return guarded


@app.command()
@plain_errors
def compare(
    dataset: DatasetName = "digits",
    strategies: StrategyNames = _OPENING,
    preset: Preset = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ....")] = 3,
    engine: EngineName = "local",
    nodes: Nodes = None,
    engine_set: EngineSet = [],  # noqa: B006 - Typer copies it
    set_: Set = [],  # noqa: B006 - Typer copies it
    csv: Csv = None,
    label: Column = None,
    group: Column = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare strategies on one data set; without arguments, on the embedded digits.

    Example: fedfair compare --dataset adult --strategies sgd,dpsgd,dpsgd-f --preset yang2024 --out out/adult
    """
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    settings = _settings(set_, dataset=dataset, csv=csv, label=label, group=group)
    planned = experiments(names, list(range(seeds)), preset, settings)
    chosen = make_engine(engine, nodes, pairs(engine_set))
    if len(planned) == 1:
        _run_one(planned[0], chosen, out, None, json)
        return
    described = {"strategies": names, "seeds": list(range(seeds)), **({"preset": preset} if preset else {}),
                 "settings": settings}
    if out is not None:
        refuse_other(out, described)
    with _progress() as on_round:
        results = run_comparison(planned, chosen, on_round=on_round)
    saved = save_comparison(results, described, out) if out is not None else None
    _show(results, saved, json)


@app.command()
@plain_errors
def run(
    dataset: DatasetName = "digits",
    strategy: StrategyName = "dpsgd-f",
    preset: Preset = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    engine: EngineName = "local",
    nodes: Nodes = None,
    engine_set: EngineSet = [],  # noqa: B006 - Typer copies it
    set_: Set = [],  # noqa: B006 - Typer copies it
    csv: Csv = None,
    label: Column = None,
    group: Column = None,
    out: Out = None,
    checkpoint_every: Every = None,
    track: Track = None,
    json: Json = False,
) -> None:
    """Run one strategy once; with --out, the same command goes on where it was stopped.

    Example: fedfair run --dataset adult --strategy dpsgd-f --set epochs=5 --set options.max_bound=4
    """
    settings = _settings(set_, dataset=dataset, csv=csv, label=label, group=group)
    planned = experiments([strategy], [seed], preset, settings)
    _run_one(planned[0], make_engine(engine, nodes, pairs(engine_set)), out, checkpoint_every, json, track)


@app.command()
@plain_errors
def sweep(
    config: Annotated[Path, typer.Argument(help="The sweep's description, in TOML.")],
    out: Annotated[Path, typer.Option(help="Folder of the results; what is finished there is not run again.")],
    ray_address: Annotated[str | None, typer.Option(help="A Ray cluster: auto for the one on this machine; by default "
                                                    "RAY_ADDRESS, or else a cluster for this sweep alone.")] = None,
    cpus: Annotated[int, typer.Option(min=1, help="Cores, and threads, for each trial.")] = 1,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs for each trial; shares are allowed.")] = 0,
) -> None:
    """Run data sets x strategies x seeds x settings on a Ray cluster; the same command goes on where it was stopped.

    Example: fedfair sweep yang.toml --out out/yang, with datasets, strategies, seeds, preset, [settings] and [vary] in
    yang.toml; [search] instead of [vary] looks for the best settings.
    """
    described = Sweep.read(config)
    planned = trials(described)
    kept = prepare_folder(out, described)
    from simulations.collect import collect  # here, because importing Ray takes a second
    from simulations.grids.workers import connect
    from simulations.trials import Resources, is_finished, run_trials

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
        console.print(f"[red]failed:[/red] {escape(name)}: {escape(reason)}", highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


@app.command()
@plain_errors
def curve(
    dataset: DatasetName = "adult",
    strategies: StrategyNames = "dpsgd,gs-dp-sgd-to,dpsgd-p",
    over: Annotated[list[str], typer.Option(help="What is varied: theta=[...], or STRATEGY.key=[...] for one strategy; "
                                            "by default theta, where a threshold is looked for.")] = [],  # noqa: B006
    preset: Preset = "yang2024",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ....")] = 1,
    engine: EngineName = "local",
    set_: Set = [],  # noqa: B006 - Typer copies it
    csv: Csv = None,
    label: Column = None,
    group: Column = None,
    out: Out = None,
) -> None:
    """Follow what a setting trades: demographic parity against accuracy parity and accuracy.

    Example: fedfair curve --strategies dpsgd,gs-dp-sgd-to,dpsgd-p --over theta=[0.02,0.05,0.1] --out out/curve
    """
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    settings, values = _settings(set_, dataset=dataset, csv=csv, label=label, group=group), pairs(over)
    described = {"strategies": names, "seeds": seeds, "over": values, "settings": settings,
                 **({"preset": preset} if preset else {})}
    if out is not None:
        refuse_other(out, described)
    frame = curves(names, list(range(seeds)), preset, settings, values, engine)
    print(frame.drop(columns="dataset").to_string(index=False, float_format="{:.3f}".format))
    if out is not None:
        print(f"saved in {save_curves(frame, described, out)}")


@app.command()
@plain_errors
def audit(
    strategy: StrategyName = "dpsgd",
    attack: Annotated[str, typer.Option(help="canaries (white box) or membership (black box, any engine).")] =
    "canaries",
    epsilon: Annotated[float, typer.Option(help="The epsilon to claim.")] = 3.0,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs, with seeds 0, 1, ....")] = 1,
    canaries: Annotated[int, typer.Option(min=100, help="In the white box.")] = 20_000,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.999, help="Of each bound.")] = 0.95,
    engine: EngineName = "local",
    set_: Set = [],  # noqa: B006 - Typer copies it
    out: Annotated[Path | None, typer.Option(help="JSON file to write the findings to.")] = None,
) -> None:
    """Attack a run, and compare what is found with the epsilon that the ledger claims; exit code 1 if it is refuted.

    Example: fedfair audit --strategy dpsgd-f --epsilon 1 --seeds 5 --set trust=local
    """
    settings = {"target_epsilon": epsilon, **pairs(set_)}
    found = audits(strategy, attack, range(seeds), settings, canaries, confidence, engine)
    Console().print(audit_table(found))
    if out is not None:
        write_json(out, {"audits": [each.to_dict() for each in found]})
        print(f"saved in {out}")
    if any(each.refuted for each in found):
        raise typer.Exit(1)


@app.command()
@plain_errors
def reproduce(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join((FAIR_FIGHT, YANG_CURVES, *published_names()))}.")],
    out: Annotated[Path, typer.Option(help="Folder to save the comparison in; runs that are there are not repeated.")],
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version, in minutes; the page says what differs.")
                     ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; by default the paper's.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each a process.")] = 1,
) -> None:
    """A published table or figure, run again and set beside the paper; or fair-fight, every method tuned alike.

    Example: fedfair reproduce xu2021-table1 --quick --out out/xu2021-table1
    """
    with _progress() as on_round:
        if name == FAIR_FIGHT:
            said = fair_fight(out, seeds, quick, device, on_round, jobs)
        elif name == YANG_CURVES:
            said = yang_curves(out, seeds, quick, device, on_round)
        else:
            said = sentence(reproduce_table(name, out, seeds, quick, device, on_round, jobs))
    print(f"{said} See {out / 'README.md'}.")


@app.command()
@plain_errors
def ledger(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run or comparison.")],
    delta: Annotated[float | None, typer.Option(help="Another delta than the run's.")] = None,
) -> None:
    """What a run guarantees and what it spent, by group and observer, computed anew from its events.

    Example: fedfair ledger out/adult --delta 1e-5
    """
    for name, found in read_ledgers(folder).items():
        Console().print(f"\n{name}" if name else "", ledger_table(found, delta), sep="\n")


@app.command()
@plain_errors
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs, comparisons or sweeps.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; by default report.html in the first folder.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for the figures as PNG and SVG and the tables as LaTeX; "
                                                 "needs the extra figures.")] = None,
) -> None:
    """Make one HTML file, which needs no network, of what runs, comparisons and sweeps left.

    Example: fedfair report out/adult --figures out/adult-figures
    """
    from simulations.report import write_report  # here, because only this command needs a template engine

    with Console(stderr=True).status("reading, accounting and drawing"):
        written = write_report(folders, out, figures)
    print(f"saved {written[0]}" + (f" and {len(written) - 1} files in {figures}" if figures else ""))


@data.command("list")
def list_data() -> None:
    """The data sets by name, with their variants.

    Example: fedfair data list
    """
    for name in DATASETS:
        print(name, *(f"(balance = {variant})" for variant in DATASETS[name].variants))


@data.command()
@plain_errors
def fetch(name: str, label: Column = None, group: Column = None) -> None:
    """Download a data set into the cache, or check the copy that is there; hf:NAME needs label and group.

    Example: fedfair data fetch adult
    """
    parts = Task(dataset=name, label=label, group=group).data()
    print(f"{name}: {sum(len(part) for _, part in parts):,} records, verified")


@data.command()
@plain_errors
def describe(name: str, label: Column = None, group: Column = None) -> None:
    """Records, features and groups of a data set; hf:NAME needs label and group.

    Example: fedfair data describe digits
    """
    _describe(name, Task(dataset=name, label=label, group=group))


@data.command()
@plain_errors
def check(file: Path, label: Annotated[str, typer.Option()], group: Annotated[str, typer.Option()],
          missing: Annotated[str, typer.Option(help="Rows with missing values: refuse or drop.")] = "refuse") -> None:
    """What is in a file of your own, what each column is taken as, and whether it can be used.

    Example: fedfair data check people.csv --label hired --group sex
    """
    Console().print(columns_table(str(file), understand(tidied(read_csv(file)), label, group)))
    _describe(str(file), Experiment(csv=str(file), label=label, group=group, missing=missing).task)


def _describe(name: str, task: Task) -> None:
    """Print what a task's data holds."""
    parts = task.data()
    print(f"{name}: {sum(len(part) for _, part in parts):,} records, {tuple(parts.train.x.shape[1:])} features, "
          f"{parts.train.classes} classes")
    for split, part in parts:
        print(f"  {split}: " + ", ".join(f"{n} {s:,}" for n, s in zip(part.names, part.group_sizes(), strict=True)))


def _settings(set_: list[str], **given: Any) -> dict[str, Any]:
    """Settings from key=value pairs and options that were given; values are read as TOML, or else as text."""
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()
                if value is not None and not (key == "dataset" and given.get("csv"))}
    return {**settings, **pairs(set_)}


def _run_one(experiment: Experiment, engine: Engine, out: Path | None, every: int | None, json: bool,
             track: str | None = None) -> None:
    """Run, from a checkpoint on if there is one, save, and print what came out."""
    checkpoint = None if out is None else Checkpoint(out, experiment.settings(), every)
    found = checkpoint.read() if checkpoint else None
    if found:
        Console(stderr=True).print(f"{out} holds a checkpoint: going on after round {found[0]}", highlight=False)
    name = f"{experiment.strategy}, seed {experiment.seed}"
    place = out.with_name(f"{out.name}-tracking") if out is not None else Path("tracking")
    followed = tracking(track, place, experiment) if track else nullcontext(lambda strategy, now: None)
    with _progress() as on_round, followed as watch:
        result = run_experiment(experiment, engine, checkpoint=checkpoint, watch=watch,
                                progress=lambda rounds, of: on_round(0, 1, name, rounds, of))
    _show([result], result.save(out) if out is not None else None, json)


def _show(results: Sequence[Result], saved: Path | None, json: bool) -> None:
    """Print the results, and where they are."""
    if json:
        print(as_json(results, saved))
        return
    Console().print(results_table(results))
    if saved is not None:
        print(f"saved in {saved}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str, int, int], None]]:
    """A progress bar over all runs, with the time left, on a terminal."""
    percentage = TextColumn("{task.percentage:.0f}%")
    columns = (TextColumn("{task.description}"), BarColumn(), percentage, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("preparing", total=1.0)

        def on_round(done: int, runs: int, name: str, rounds: int, of: int) -> None:
            progress.update(bar, description=f"{name} ({done + 1} of {runs})", completed=(done + rounds / of) / runs)

        yield on_round
