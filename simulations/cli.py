"""The command `fedfair`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from simulations.compare import compare as run_comparison
from simulations.compare import experiments
from simulations.curves import curves, save_curves
from simulations.experiment import Experiment
from simulations.ledger_table import ledger_table, read_ledgers
from simulations.presets import preset_names
from simulations.result import refuse_other, save_comparison
from simulations.run import ENGINES
from simulations.table import columns_table, results_table
from simulations.values import pairs

_OPENING = "sgd,dpsgd,dpsgd-f,dpsgd-global-adapt"

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False,
                  help="What does each group pay for privacy, and which method closes the gap?")
data = typer.Typer(no_args_is_help=True, help="Data sets: what there is, fetching, describing, checking a file.")
app.add_typer(data, name="data")

P = ParamSpec("P")
Preset = Annotated[str | None, typer.Option(help=f"Published settings: {', '.join(preset_names())}.")]
Set = Annotated[list[str], typer.Option("--set", help="A setting, key=value; STRATEGY.key=value for one strategy, "
                                        "options.key=value for a strategy's own options.")]
Out = Annotated[Path | None, typer.Option(help="Folder to save the results in.")]
EngineName = Annotated[str, typer.Option(help=f"Where clients run: {', '.join(ENGINES)}.")]
Nodes = Annotated[int | None, typer.Option(min=1, help="Flower nodes that host the clients; by default one, or two "
                                           "under Flower.")]
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
    dataset: Annotated[str, typer.Option(help=f"One of {', '.join(DATASETS)}.")] = "digits",
    strategies: Annotated[str, typer.Option(help="Names, separated by commas.")] = _OPENING,
    preset: Preset = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ....")] = 3,
    engine: EngineName = "local",
    nodes: Nodes = None,
    set_: Set = [],  # noqa: B006 - Typer copies it
    csv: Csv = None,
    label: Column = None,
    group: Column = None,
    out: Out = None,
) -> None:
    """Compare strategies on one data set; without arguments, on the embedded digits.

    Example: fedfair compare --dataset adult --strategies sgd,dpsgd,dpsgd-f --preset yang2024 --out out/adult
    """
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    settings = _settings(set_, dataset=dataset, csv=csv, label=label, group=group)
    _show(names, list(range(seeds)), preset, settings, engine, nodes, out)


@app.command()
@plain_errors
def run(
    dataset: Annotated[str, typer.Option(help=f"One of {', '.join(DATASETS)}.")] = "digits",
    strategy: Annotated[str, typer.Option(help="Its name.")] = "dpsgd-f",
    preset: Preset = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    engine: EngineName = "local",
    nodes: Nodes = None,
    set_: Set = [],  # noqa: B006 - Typer copies it
    csv: Csv = None,
    label: Column = None,
    group: Column = None,
    out: Out = None,
) -> None:
    """Run one strategy once.

    Example: fedfair run --dataset adult --strategy dpsgd-f --set epochs=5 --set options.max_bound=4
    """
    settings = _settings(set_, dataset=dataset, csv=csv, label=label, group=group)
    _show([strategy], [seed], preset, settings, engine, nodes, out)


@app.command()
@plain_errors
def curve(
    dataset: Annotated[str, typer.Option(help=f"One of {', '.join(DATASETS)}.")] = "adult",
    strategies: Annotated[str, typer.Option(help="Names, separated by commas.")] = "dpsgd,gs-dp-sgd-to,dpsgd-p",
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
def ledger(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run or comparison.")],
    delta: Annotated[float | None, typer.Option(help="Another delta than the run's.")] = None,
) -> None:
    """What a run guarantees and what it spent, by group and observer, computed anew from its events.

    Example: fedfair ledger out/adult --delta 1e-5
    """
    for name, found in read_ledgers(folder).items():
        Console().print(f"\n{name}" if name else "", ledger_table(found, delta), sep="\n")


@data.command("list")
def list_data() -> None:
    """The data sets by name, with their variants."""
    for name in DATASETS:
        print(name, *(f"(balance = {variant})" for variant in DATASETS[name].variants))


@data.command()
@plain_errors
def fetch(name: str, label: Column = None, group: Column = None) -> None:
    """Download a data set into the cache, or check the copy that is there; hf:NAME needs label and group."""
    parts = Task(dataset=name, label=label, group=group).data()
    print(f"{name}: {sum(len(part) for _, part in parts):,} records, verified")


@data.command()
@plain_errors
def describe(name: str, label: Column = None, group: Column = None) -> None:
    """Records, features and groups of a data set; hf:NAME needs label and group."""
    _describe(name, Task(dataset=name, label=label, group=group))


@data.command()
@plain_errors
def check(file: Path, label: Annotated[str, typer.Option()], group: Annotated[str, typer.Option()],
          missing: Annotated[str, typer.Option(help="Rows with missing values: refuse or drop.")] = "refuse") -> None:
    """What is in a file of your own, what each column is taken as, and whether it can be used."""
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


def _show(strategies: list[str], seeds: list[int], preset: str | None, settings: dict[str, Any], engine: str,
          nodes: int | None, out: Path | None) -> None:
    """Run, print the table, and save."""
    planned = experiments(strategies, seeds, preset, settings)
    single = len(planned) == 1
    described = planned[0].settings() if single else {
        "strategies": strategies, "seeds": seeds, **({"preset": preset} if preset else {}), "settings": settings}
    if out is not None:
        refuse_other(out, described)
    with _progress() as on_round:
        results = run_comparison(planned, engine, nodes, on_round)
    Console().print(results_table(results))
    if out is not None:
        print(f"saved in {results[0].save(out) if single else save_comparison(results, described, out)}")


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
