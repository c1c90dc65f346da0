"""Names and meanings in help texts and completions, looked up when somebody asks for them.

Importing PyTorch and Flower takes seconds, which a person who asks for help, or presses the tab key, should not wait.

Settings that a sentence names, as options of the command line.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand

from fedfair.datasets.names import names_in
from fedfair.plugins.text_values import from_toml
from simulations.settings.names import ENGINES, SETTINGS, preset_names


def data_sets() -> Iterable[str]:
    """Return the names of the data sets."""
    from fedfair.datasets import DATASETS

    return DATASETS


def strategies() -> Iterable[str]:
    """Return the names of the strategies and combinations."""
    from strategies import COMBINATIONS, STRATEGIES

    return (*STRATEGIES, *COMBINATIONS)


def engines() -> Iterable[str]:
    """Return the names of the engines."""
    return ENGINES


def presets() -> Iterable[str]:
    """Return the names of the presets."""
    return preset_names()


def trackers() -> Iterable[str]:
    """Return the names of the trackers."""
    from simulations.engines.tracking import TRACKERS

    return TRACKERS


def reproductions() -> Iterable[str]:
    """Return the names of what can be reproduced."""
    from simulations.reproductions import (
        cost_study,
        frontier,
        heterogeneity,
        published,
        shakespeare,
        surface_study,
        tuning,
        yang_curves,
    )

    return (frontier.NAME, tuning.NAME, cost_study.NAME, surface_study.NAME, heterogeneity.NAME, shakespeare.NAME,
            yang_curves.NAME, *published.names())


def settings() -> Iterable[str]:
    """Return the names of all settings and strategies."""
    return (*SETTINGS, *strategies())


def pairs_to_set() -> Iterable[str]:
    """Return the beginnings of settings as `--set` takes them."""
    return (f"{name}=" for name in SETTINGS)


_NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    made.__name__: made for made in (data_sets, strategies, engines, presets, trackers, reproductions)}


class Words(dict[str, str]):
    """What stands in place of {braces} in a help text: names, or what the setting of that name means."""

    def __missing__(self, name: str) -> str:
        """Look a word up."""
        if name in _NAMES:
            return ", ".join(_NAMES[name]())
        from simulations.settings.catalogue import meaning

        return meaning(name)


class Command(TyperCommand):
    """Command whose help texts hold {words}."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual; raise `typer.BadParameter` for a null character, which no file's name can hold."""
        if any("\0" in given for given in args):
            raise typer.BadParameter("a null character was given: leave it out")
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Put the words in, then print as usual."""
        words = Words()
        described: Any
        for described in self.params:
            described.help = (described.help or "").format_map(words)
        self.epilog = self.epilog and self.epilog.format_map(words)
        super().format_help(ctx, formatter)


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return the shell's completion among names: of what was typed, or of its part behind the last comma."""
    def complete(incomplete: str) -> list[str]:
        """Return what the last name can be completed to."""
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(begun)]

    return complete


_NAMED = re.compile(r'\b([a-z_]+) = (\[[^\]]*\]|"[^"]*")')
_OPTIONS = ("encoding", "missing", "without")


def as_options(sentence: str, given: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the settings that a sentence recommends, as options; "" if it names none.

    Lists of names that are recommended for several columns are put together, with what the command was given, whose
    option they replace; of other alternatives the first one is taken.

    Args:
        sentence: Words with settings in TOML, such as `missing = "drop"`.
        given: Arguments of the command: its lists stand under "without" and, as settings in TOML, "set_".
    """
    settings = dict(pair.partition("=")[::2] for pair in given.get("set_") or ())
    lists = {name: value for name, text in settings.items() if isinstance(value := _value(text), list)}
    lists |= {"without": names_in(given["without"])} if given.get("without") else {}
    found: dict[str, Any] = {}
    for name, text in _NAMED.findall(sentence):
        value = _value(text)
        if name not in SETTINGS or value is None:
            continue
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            found[name] = [*dict.fromkeys([*found.get(name, lists.get(name, [])), *value])]
        else:
            found.setdefault(name, value)
    return " ".join(_option(name, value) for name, value in found.items() if value)


def _value(text: str) -> Any:
    """Return a value in TOML; None for one that is cut off, as a name with brackets is."""
    try:
        return from_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None


def _option(name: str, value: Any) -> str:
    """Write a setting as an option, quoted for a shell."""
    if name in _OPTIONS:
        names = ",".join(f'"{each}"' if "," in each or '"' in each else each for each in value
                         ) if isinstance(value, list) else value
        return f"--{name} {shlex.quote(names)}"
    listed = "[{}]".format(", ".join(f'"{each}"' if isinstance(each, str) else str(each) for each in value)
                           ) if isinstance(value, list) else value
    return f"--set {shlex.quote(f'{name}={listed}')}"
