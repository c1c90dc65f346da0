"""Options that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfair.datasets.files.query import DUCKDB, Query, is_address
from fedfair.datasets.names import names_in
from fedfair.protocol.fields import MOST_NODES, MOST_RUNS, MOST_STEPS
from simulations.commands.words import completing, data_sets, engines, pairs_to_set, presets, strategies
from simulations.settings.names import pairs

if TYPE_CHECKING:
    from simulations.engines.engines import Engine

Preset = Annotated[str | None, typer.Option(help="Published settings: {presets}.",
                                            autocompletion=completing(presets))]
Set = Annotated[list[str], typer.Option("--set", help="A setting, key=value, which fedfair settings lists; "
                                        "STRATEGY.key=value for one strategy, options.key=value for a strategy's own "
                                        "options. Repeat it for more.", autocompletion=completing(pairs_to_set))]
Risk = Annotated[list[str], typer.Option("--risk", help="Excessive-risk terms along the way, every=N steps; also "
                                         "--risk vectors=N for the traces, --risk records=N of each group.")]
Out = Annotated[Path | None, typer.Option(help="Folder to save the results in.")]
EngineName = Annotated[str, typer.Option(help="Where clients run: {engines}.", autocompletion=completing(engines))]
DatasetName = Annotated[str | None, typer.Option(help="One of {data_sets}, or hf:NAME; by default digits, for a "
                                                 "curve adult.", autocompletion=completing(data_sets))]
StrategyName = Annotated[str, typer.Option(help="{strategy}", autocompletion=completing(strategies))]
StrategyNames = Annotated[str, typer.Option(help="Names, separated by commas.", autocompletion=completing(strategies))]
EngineSet = Annotated[list[str], typer.Option("--engine-set", help="A setting of the engine, key=value; for ray: "
                                              "address, cpus, gpus, threads, timeout, restarts.")]
Nodes = Annotated[int | None, typer.Option(min=1, max=MOST_NODES, help="Flower nodes that host the clients; by "
                                           "default one, two under Flower, and as many as there is room for on Ray.")]
Every = Annotated[int | None, typer.Option(min=1, max=MOST_STEPS, help="Rounds between checkpoints in the folder "
                                           "--out, from which the same command goes on if it was stopped; by default "
                                           "100 steps or 1 epoch, more where they would take over 2 % of the time.")]
Track = Annotated[str | None, typer.Option(help="Follow the run in one of {trackers}: in the folder "
                                           "OUT-tracking, or tracking without --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of the table.")]
Sql = Annotated[str | None, typer.Option("--sql", help="Query whose rows are the table, which is then the address "
                                         "postgresql://user@host/database of a server, or a file of DuckDB; needs "
                                         "fedfair[postgresql] or fedfair[duckdb].")]
Csv = Annotated[Path | None, typer.Option(help="{csv}")]
Label = Annotated[str | None, typer.Option(help="{label}")]
Group = Annotated[str | None, typer.Option(help="{group}")]
Attribute = Annotated[bool | None, typer.Option("--attribute-in-model/--no-attribute-in-model",
                                               help="{attribute_in_model}", show_default=False)]
Encoding = Annotated[str | None, typer.Option(help="{encoding}")]
Missing = Annotated[str | None, typer.Option(help="{missing}")]
Without = Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")]
Epsilon = Annotated[float | None, typer.Option(help="Epsilon at delta that the whole run is kept within: the setting "
                                               "target_epsilon, in place of noise_multiplier.")]
Delta = Annotated[float | None, typer.Option(help="{delta}")]
Seeds = Annotated[int, typer.Option(min=1, max=MOST_RUNS, help="Number of seeds: 0, 1, ....")]
Seed = Annotated[int, typer.Option(min=0, help="{seed}")]


def source_of(table: str, sql: str | None) -> Path | Query:
    """Return where the rows of a table are: a file, folder or pattern, or a query of a database.

    Args:
        table: Path, or the address of a server.
        sql: The query; None for a file.

    Raises:
        ValueError: If a database is given without a query; the message has no password.
    """
    if sql is not None:
        return Query(table, sql)
    if is_address(table) or table.lower().endswith(DUCKDB):
        shown = "the address of a server" if is_address(table) else f"{table}, a file of DuckDB,"
        raise ValueError(f"{shown} needs a query, which says what rows the table has: give it, for example "
                         "--sql 'select ...'")
    return Path(table)


def settings_of(set_: list[str], risk: Sequence[str] = (), default: str = "digits", **given: Any) -> dict[str, Any]:
    """Return settings from key=value pairs, those of `--risk`, and options that were given; values are read as TOML,
    or else as text. Without a data set or a file, the data set is `default`.

    Raises `ValueError` for a setting that an option chooses, for one that is given twice, and for a data set beside a
    file.
    """
    from simulations.settings.presets import refuse_chosen

    options = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()
               if value is not None}
    own = pairs(set_)
    refuse_chosen(own)
    for key in options.keys() & own.keys():
        if own[key] != options[key]:
            raise ValueError(f"{key} is {options[key]!r} by its option, and {own[key]!r} by --set: leave one of them "
                             "out")
    settings = {**options, **own, **{f"risk_{key}": value for key, value in pairs(risk).items()}}
    if not settings.get("csv"):
        return {"dataset": default, **settings}
    if "dataset" in settings:
        raise ValueError(f"csv is {settings['csv']}, and dataset is {settings['dataset']}: leave one of them out")
    return settings


def engine_of(name: str, nodes: int | None, engine_set: list[str]) -> Engine:
    """Return the engine with its settings from key=value pairs; raise `ValueError` for one that is not allowed."""
    from simulations.engines.engines import make_engine

    settings = pairs(engine_set)
    if "nodes" in settings:
        raise ValueError(f"nodes is {settings['nodes']!r} among the engine's settings, but it is chosen by --nodes")
    return make_engine(name, nodes, settings)


def names_of(names: str) -> list[str]:
    """Return names that were separated by commas; a name with a comma stands in double quotes."""
    return names_in(names)
