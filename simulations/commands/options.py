"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfair.datasets import DATASETS
from fedfair.datasets.name_lists import names_in
from simulations.engines.engines import ENGINES, Engine, make_engine
from simulations.engines.tracking import TRACKERS
from simulations.settings.catalogue import meaning
from simulations.settings.presets import preset_names, refuse_chosen
from simulations.settings.settings_text import pairs
from strategies import COMBINATIONS, STRATEGIES


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the shell's completion among names: of what was typed, or of its part behind the last comma."""
    def complete(incomplete: str) -> list[str]:
        """Return what the last name can be completed to."""
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(begun)]

    return complete


Preset = Annotated[str | None, typer.Option(help=f"Published settings: {', '.join(preset_names())}.",
                                            autocompletion=completing(preset_names()))]
Set = Annotated[list[str], typer.Option("--set", help="A setting, key=value, which fedfair settings lists; "
                                        "STRATEGY.key=value for one strategy, options.key=value for a strategy's own "
                                        "options. Repeat it for more.")]
Risk = Annotated[list[str], typer.Option("--risk", help="Excessive-risk terms along the way, every=N steps; also "
                                         "--risk vectors=N for the traces, --risk records=N of each group.")]
Out = Annotated[Path | None, typer.Option(help="Folder to save the results in.")]
EngineName = Annotated[str, typer.Option(help=f"Where clients run: {', '.join(ENGINES)}.",
                                         autocompletion=completing(ENGINES))]
DatasetName = Annotated[str | None, typer.Option(help=f"One of {', '.join(DATASETS)}, or hf:NAME; by default "
                                                 "digits, for a curve adult.", autocompletion=completing(DATASETS))]
StrategyName = Annotated[str, typer.Option(help=meaning("strategy"),
                                           autocompletion=completing([*STRATEGIES, *COMBINATIONS]))]
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
Csv = Annotated[Path | None, typer.Option(help=meaning("csv"))]
Label = Annotated[str | None, typer.Option(help=meaning("label"))]
Group = Annotated[str | None, typer.Option(help=meaning("group"))]
Attribute = Annotated[bool | None, typer.Option("--attribute-in-model/--no-attribute-in-model",
                                               help=meaning("attribute_in_model"), show_default=False)]
Encoding = Annotated[str | None, typer.Option(help=meaning("encoding"))]
Seed = Annotated[int, typer.Option(min=0, help=meaning("seed"))]


def settings_of(set_: list[str], risk: Sequence[str] = (), default: str = "digits", **given: Any) -> dict[str, Any]:
    """Return settings from key=value pairs, those of `--risk`, and options that were given; values are read as TOML,
    or else as text. Without a data set or a file, the data set is `default`.

    Raises `ValueError` for a setting that an option chooses, and for a data set beside a file.
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
    """Return the engine with its settings from key=value pairs; raise `ValueError` for one that is not allowed."""
    settings = pairs(engine_set)
    if "nodes" in settings:
        raise ValueError(f"nodes is {settings['nodes']!r} among the engine's settings, but it is chosen by --nodes")
    return make_engine(name, nodes, settings)


def names_of(names: str) -> list[str]:
    """Return names that were separated by commas; a name with a comma stands in double quotes."""
    return names_in(names)
