"""The command that runs a folder's experiment again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import tomli_w

from fedfair.protocol.marks import marked
from simulations.report.folders import Source
from simulations.settings.experiment import Experiment, SettingsError
from simulations.settings.own_data import FITTED, is_own
from simulations.settings.preset_files import preset_names
from simulations.settings.presets import merged, preset
from simulations.settings.settings_text import parsed

REPLACED: Mapping[str, str] = {old: new for new, old in marked(Experiment, "replaces").items()}
"""Settings that others take the place of, by name."""


def command(source: Source) -> str:
    """Return what to type; it saves into a folder called "again"."""
    settings = source.settings
    if source.kind == "sweep":
        return "fedfair sweep config.toml --out again"
    words = _run(settings) if source.kind == "run" else _compare(settings)
    return " ".join([*map(shlex.quote, words), "--out", "again"])


def _compare(settings: Mapping[str, Any]) -> list[str]:
    """Return the words of a comparison, as it was asked for."""
    words = ["fedfair", "compare", "--strategies", ",".join(settings["strategies"]),
             "--seeds", str(len(settings["seeds"]))]
    if "preset" in settings:
        words += ["--preset", settings["preset"]]
    return words + _given(settings["settings"])


def _run(settings: Mapping[str, Any]) -> list[str]:
    """Return the words of a run, by the preset that leaves least to set and sets nothing that the run does not."""
    strategy, seed = settings["strategy"], settings["seed"]
    rest = {key: value for key, value in settings.items() if key not in ("strategy", "seed")}
    choices = {name: given for name in (None, *preset_names()) if (given := _beyond(name, strategy, rest)) is not None}
    name, given = min(choices.items(), key=lambda choice: len(choice[1]), default=(None, rest))
    return ["fedfair", "run", "--strategy", strategy, "--seed", str(seed), *(["--preset", name] if name else []),
            *_given({**_data(rest), **given})]


def _beyond(name: str | None, strategy: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a run's settings beyond a preset and the defaults; None if the preset sets what the run does not."""
    layer = preset(name, None if "csv" in settings else settings["dataset"], strategy)
    try:
        base = Experiment(**merged(_data(settings), layer, {"strategy": strategy})).settings()
    except SettingsError:
        return None
    if not (set(layer) <= set(settings) and set(layer.get("options", {})) <= set(settings["options"])):
        return None
    named = FITTED if name is None and is_own(settings) else ()  # else the command would fit them to the data
    return {key: value for key, value in settings.items() if base.get(key) != value or
            (key in named and REPLACED.get(key) not in settings)}


def _data(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that name the data."""
    return {key: settings[key] for key in ("dataset", "csv", "label", "group") if key in settings}


def _given(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as options of the command, those of the strategy one by one."""
    words = []
    for key, value in settings.items():
        if key in ("csv", "label", "group", "dataset"):
            words += [f"--{key}", str(value)] if key != "dataset" or "csv" not in settings else []
        elif key == "options":
            words += [word for name, option in value.items() for word in ("--set", f"options.{name}={_toml(option)}")]
        else:
            words += ["--set", f"{key}={_toml(value)}"]
    return words


def _toml(value: Any) -> str:
    """Return a value as `--set` reads it."""
    if isinstance(value, str) and parsed(value) == value:
        return value
    return " ".join(tomli_w.dumps({"value": value}).removeprefix("value = ").split()).replace(",]", "]")
