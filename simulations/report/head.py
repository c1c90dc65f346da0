"""The head of a chapter: what was run on which records, and the finding in one line.

The command that runs a folder's experiment again.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import tomli_w

from fedfair.accounting.figures import up
from fedfair.fairness.metrics import ALL
from fedfair.protocol.fields import marked
from simulations.results.comparison import Comparison
from simulations.results.run_folder import Source
from simulations.settings.experiment import Experiment, SettingsError
from simulations.settings.names import parsed, preset_names
from simulations.settings.presets import FITTED, is_own, merged, preset
from simulations.statistics.measures import measures
from simulations.statistics.over_seeds import constant_models
from simulations.statistics.statements import verdict


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the facts by name, those that are known: the finding, what was trained on what, and how privately."""
    final = comparison.final
    tested = final[ALL, "records"].min() if (ALL, "records") in final else math.nan
    numbers = {"training": float(sum(comparison.sizes.values())), "testing": float(tested)}
    known = {
        "Finding": headline(comparison), "Date": comparison.date,
        "Data": comparison.data.csv or comparison.dataset, "Label": comparison.data.label or "",
        "Favourable class": comparison.favourable.removeprefix("Favourable class: "),
        "Records": ", ".join(f"{number:,.0f} for {use}" for use, number in numbers.items() if number > 0),
        "Epsilon": _epsilons(comparison.summary["epsilon"]),
        "Delta": _range(list(dict.fromkeys(up(value, ".6g") for value in comparison.summary["delta"]))),
        "Seeds": str(comparison.seeds)}
    return [(name, value) for name, value in known.items() if value]


def common_facts(comparisons: Sequence[Comparison]) -> list[tuple[str, str]]:
    """Return what is known of several comparisons, at least one: the facts that all have, and all their epsilons."""
    known = [dict(facts(comparison)) for comparison in comparisons]
    epsilons = _epsilons(pd.concat([comparison.summary["epsilon"] for comparison in comparisons]))
    common = {name: value for name, value in known[0].items() if all(other.get(name) == value for other in known)}
    return [(name, epsilons if name == "Epsilon" else common[name]) for name in known[0]
            if name in common or name == "Epsilon"]


def headline(comparison: Comparison) -> str:
    """Return the finding in one line: a model that predicts one class, what privacy costs, or the accuracy."""
    final = comparison.final
    lines = [*constant_models(measures(final)), *verdict(final, comparison.sizes)]
    if lines:
        return lines[0]
    accuracies = final[ALL, "accuracy"].groupby(level="strategy", sort=False).mean()
    return "Accuracy " + ", ".join(f"{value:.3f} ({name})" for name, value in accuracies.items()) + "."


def _epsilons(values: pd.Series[float]) -> str:
    """Return the smallest and the largest epsilon in words, and whether something is not private."""
    spent = sorted(value for value in values if math.isfinite(value))
    rounded = list(dict.fromkeys(up(value, ".3g") for value in spent))
    return _range(rounded) + (" (and without privacy)" if spent and len(spent) < len(values) else "")


def _range(values: list[str]) -> str:
    """Return the first and the last of some values in words; none for no value."""
    if not values:
        return "none: nothing is private"
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"


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
    if isinstance(value, Mapping):
        return f"{{{', '.join(tomli_w.dumps({key: each}).strip() for key, each in value.items())}}}"
    return " ".join(tomli_w.dumps({"value": value}).removeprefix("value = ").split()).replace(",]", "]")
