"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfair.datasets import DATASETS
from simulations.engines.engines import ENGINES, Engine, make_engine
from simulations.engines.tracking import TRACKERS
from simulations.settings.presets import preset_names, refuse_chosen
from simulations.settings.settings_text import pairs
from strategies import COMBINATIONS, STRATEGIES


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """The names that begin as what was typed so far, or as its part behind the last comma; for the shell."""
    def complete(incomplete: str) -> list[str]:
        """What the last name can be completed to."""
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(begun)]

    return complete


Preset = Annotated[str | None, typer.Option(help=f"Published settings: {', '.join(preset_names())}.",
                                            autocompletion=completing(preset_names()))]
Set = Annotated[list[str], typer.Option("--set", help="A setting, key=value; STRATEGY.key=value for one strategy, "
                                        "options.key=value for a strategy's own options. Repeat it for more.")]
Risk = Annotated[list[str], typer.Option("--risk", help="Excessive-risk terms along the way, every=N steps; also "
                                         "--risk vectors=N for the traces, --risk records=N of each group.")]
Out = Annotated[Path | None, typer.Option(help="Folder to save the results in.")]
EngineName = Annotated[str, typer.Option(help=f"Where clients run: {', '.join(ENGINES)}.",
                                         autocompletion=completing(ENGINES))]
DatasetName = Annotated[str | None, typer.Option(help=f"One of {', '.join(DATASETS)}; by default digits, for a curve "
                                                 "adult.", autocompletion=completing(DATASETS))]
StrategyName = Annotated[str, typer.Option(help="Its name.", autocompletion=completing([*STRATEGIES, *COMBINATIONS]))]
StrategyNames = Annotated[str, typer.Option(help="Names, separated by commas.",
                                            autocompletion=completing([*STRATEGIES, *COMBINATIONS]))]
EngineSet = Annotated[list[str], typer.Option("--engine-set", help="A setting of the engine, key=value; for ray: "
                                              "address, cpus, gpus, threads, timeout, restarts.")]
Nodes = Annotated[int | None, typer.Option(min=1, help="Flower nodes that host the clients; by default one, two under "
                                           "Flower, and as many as there is room for on Ray.")]
Every = Annotated[int | None, typer.Option(min=1, help="Rounds between checkpoints in the folder --out, from which the "
                                           "same command goes on if it was stopped; by default 100 steps or 1 epoch, "
                                           "more where they would take over 2 % of the time.")]
Track = Annotated[str | None, typer.Option(help=f"Follow the run in one of {', '.join(TRACKERS)}: in the "
                                           "folder OUT-tracking, or tracking without --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of the table.")]
Csv = Annotated[Path | None, typer.Option(help="A file of your own instead of a data set.")]
Column = Annotated[str | None, typer.Option(help="Column of the file.")]


def settings_of(set_: list[str], risk: Sequence[str] = (), default: str = "digits", **given: Any) -> dict[str, Any]:
    """Settings from key=value pairs, those of `--risk`, and options that were given; values are read as TOML, or else
    as text. Without a data set or a file, the data set is `default`.

    Raises `ValueError` for one that says what an option says, and for a data set beside a file.
    """
    options = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()
               if value is not None}
    own = pairs(set_)
    refuse_chosen(own)
    settings = {**options, **own, **{f"risk_{key}": value for key, value in pairs(risk).items()}}
    if not settings.get("csv"):
        return {"dataset": default, **settings}
    if "dataset" in settings:
        raise ValueError(f"csv is {settings['csv']}, and dataset is {settings['dataset']}: leave one of them out")
    return settings


def engine_of(name: str, nodes: int | None, engine_set: list[str]) -> Engine:
    """The engine with its settings from key=value pairs; raises `ValueError` for one that is not allowed."""
    settings = pairs(engine_set)
    if "nodes" in settings:
        raise ValueError(f"nodes is {settings['nodes']!r} among the engine's settings, but it is chosen by --nodes")
    return make_engine(name, nodes, settings)


def names_of(names: str) -> list[str]:
    """Names that were separated by commas."""
    return [name.strip() for name in names.split(",") if name.strip()]
