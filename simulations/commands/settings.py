"""`fedfair settings` and `fedfair methods`: what can be set, and which methods there are.

`fedfair settings`: what can be set, and what it means.

`fedfair methods`: which methods there are, from which papers, and what each needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedfair.plugins.registry import unknown
from fedfair.protocol.fields import marked
from simulations.commands import words
from strategies import COMBINATIONS, STRATEGIES, file_of

if TYPE_CHECKING:
    from simulations.settings.catalogue import Setting
    from strategies import Strategy

Name = Annotated[str | None, typer.Argument(help="A setting, options.X, or a strategy, whose own options are listed.",
                                            autocompletion=words.completing(words.settings))]


def settings(name: Name = None) -> None:
    """List all settings, or describe one; they are given by --set, in TOML files and, with dashes, to flwr run.

    Example: fedfair settings clip_norm
    """
    from simulations.settings.catalogue import options_by_strategy, options_of, sections, settings_of
    from simulations.settings.experiment import Experiment

    fields, options = {setting.name: setting for setting in settings_of(Experiment)}, options_by_strategy()
    if name is None:
        for title, part in sections().items():
            _print_table(title, part)
    elif name in fields:
        _describe(fields[name], _notes(name))
        if name == "options":
            _print_options(options)
    elif name in STRATEGIES or name in COMBINATIONS or file_of(name):
        _print_options({name: options_of(name)})
    else:
        owners = {strategy: setting for strategy, own in options.items() for setting in own if setting.name == name}
        if not owners:
            known = {*fields, *(setting.name for own in options.values() for setting in own)}
            raise unknown("setting", name, known, "`fedfair settings`")
        for strategy, setting in owners.items():
            _describe(setting, [f"of the strategy {strategy}"])


def _describe(setting: Setting, notes: Iterable[str]) -> None:
    """Print all of one setting."""
    lines = [setting.meaning, f"allowed: {setting.allowed}",
             f"default: {setting.default}" if setting.default else "not set by default", *notes]
    print(setting.name)
    Console().print(Padding(Text("\n".join(filter(None, lines))), (0, 0, 0, 2)))


def _notes(name: str) -> Iterator[str]:
    """Yield where else a setting is chosen, and what it replaces."""
    from simulations.settings.experiment import Experiment

    for field, option in marked(Experiment, "chosen_by").items():
        if field == name:
            yield f"chosen by {option}"
    for field, replaced in marked(Experiment, "replaces").items():
        if name in (field, replaced):
            yield f"{field} replaces {replaced}"


def _print_options(options: dict[str, list[Setting]]) -> None:
    """Print the options of strategies."""
    for strategy, own in options.items():
        if own:
            _print_table(f"Options of {strategy}", own)
        else:
            print(f"{strategy} has no options of its own")


def _print_table(title: str, settings: Iterable[Setting]) -> None:
    """Print settings as a table, a row each; one without a meaning says what it allows."""
    from simulations.drawing.table import (
        Table,  # here, as all that completion does without
        terminal,
    )

    rows = [(setting.name, setting.default, setting.meaning or setting.allowed) for setting in settings]
    Console().print(terminal(Table("", title, ("setting", "default", "meaning"), rows)))


def methods() -> None:
    """List the methods: what each does and where it is published, what a guarantee protects, and what it needs.

    Example: fedfair methods
    """
    from simulations.drawing.table import Table, terminal

    rows = []
    for name in STRATEGIES:
        strategy = STRATEGIES[name]
        purpose = (inspect.getmodule(strategy).__doc__ or "").partition("\n")[0]
        rows.append((name, purpose, strategy.protects, _needs(strategy)))
    for name in COMBINATIONS:
        base, settings = COMBINATIONS[name]
        given = ", ".join(f"{key} = {value}" for key, value in settings.items())
        rows.append((name, f"{base} with {given}.", STRATEGIES[base].protects, "validation records"))
    Console().print(terminal(Table(columns=("method", "what it does, and its source", "protects", "needs"), rows=rows,
                                   framed=False)))


def _needs(strategy: type[Strategy]) -> str:
    """Return what a strategy says that it needs, whether it counts, and what a round must be."""
    from strategies.server.strategy import Strategy

    rounds = "" if len(strategy.modes) > 1 else f"sync {strategy.modes[0]}"
    counts = "noisy counts" if strategy.query is not Strategy.query else ""
    return "; ".join(filter(None, (strategy.needs, counts, rounds)))
