"""Settings that nobody need give: published ones, as TOML files beside the code, and those that suit one's own table.

How settings from several sources are put together: a file has `[settings]` for all, `[datasets.D]` and
`[strategies.S]` for one of them, and `[datasets.D.strategies.S]` for a pair; the more particular wins.

What suits a table of one's own, where no preset is named and nothing else is set: a linear model on features in [0, 1]
or standardised ones; large batches, since noise is drawn once a step whatever the batch; an epsilon instead of a noise
multiplier. A clipped gradient is at most `_CLIP_NORM` long, so the learning rate, with momentum, lets 160 steps reach
what logistic regression reaches (`tests/simulations/settings/test_own_data.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedfair.plugins.registry import unknown
from fedfair.protocol.fields import marked
from fedfair.protocol.record_settings import NODES
from fedfair.protocol.task import Task
from fedfair.protocol.task_data import HUGGING_FACE
from simulations.settings.experiment import Experiment, SettingsError
from simulations.settings.names import preset_names, read_preset
from strategies import COMBINATIONS, STRATEGIES, file_of, find_strategy

CHOSEN_BY: Mapping[str, str] = marked(Experiment, "chosen_by")
"""Fields of an experiment that people do not choose among its settings, and where they do."""

FITTED = ("model", "batch_size", "learning_rate", "momentum", "clip_norm", "epochs", "delta", "noise_multiplier")
"""Settings that `suited` may make, or take away, where they are not given."""

_CLIP_NORM, _EPSILON, _EPOCHS, _SHARE = 1.0, 3.0, 40.0, 0.25
_RATE = 0.5  # the learning rate at a clip norm of 1
_MOMENTUM = 0.9


def preset(name: str | None, dataset: str | None, strategy: str) -> dict[str, Any]:
    """Return a preset's settings for one data set and strategy; without a name, the preset named like the data set.

    Above them are those that the method cannot do without. `dataset` is None for a CSV file, which gets only the
    settings for all data. A combination has the settings of its strategy, unless the preset has some for the
    combination. Raises `ValueError` for an unknown name.
    """
    necessary = needed(strategy)
    if name is None:
        if dataset not in preset_names():
            return dict(necessary)
        name = dataset
    if name not in preset_names():
        raise unknown("preset", name, preset_names())
    config = read_preset(name)
    own = dict(config.get("datasets", {}).get(dataset, {}))
    pairs, strategies = own.pop("strategies", {}), config.get("strategies", {})
    names = [COMBINATIONS[strategy].strategy, strategy] if strategy in COMBINATIONS else [strategy]
    return merged(config["settings"], own, *(of.get(name, {}) for of in (strategies, pairs) for name in names),
                  necessary)


def needed(strategy: str) -> Mapping[str, Any]:
    """Return the settings that a method cannot do without; none for an unknown name, which `Experiment` refuses."""
    known = strategy in STRATEGIES or strategy in COMBINATIONS or file_of(strategy) is not None
    return find_strategy(strategy).settings if known else {}


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return one mapping from several, as `joined`; a setting also wins over one that it replaces, or is replaced by,
    in an earlier mapping, and another model (or optimiser, or partition) does without the settings of the earlier one.
    """
    belongs, fields = marked(Experiment, "belongs_to"), Experiment.model_fields
    replaces = marked(Experiment, "replaces")
    rivals = {**replaces, **{replaced: name for name, replaced in replaces.items()}}
    result: dict[str, Any] = {}
    for layer in layers:
        gone = {rivals[key] for key in layer if key in rivals}
        changed = {owner for owner in belongs.values()
                   if owner in layer and layer[owner] != result.get(owner, fields[owner].default)}
        gone |= {key for key, owner in belongs.items() if owner in changed}
        result = joined({key: value for key, value in result.items() if key not in gone - layer.keys()}, layer)
    return result


def joined(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return one mapping from several, later ones winning; `options` are joined one by one.

    Raises `SettingsError` for options that are not a table.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if key == "options" and not isinstance(value, Mapping):
                raise SettingsError(f"options is {value!r}: give a strategy's own settings by name, for example "
                                    "options.max_bound=4")
            result[key] = {**result.get(key, {}), **value} if key == "options" else value
    return result


def refuse_chosen(settings: Mapping[str, Any], fields: Iterable[str] = CHOSEN_BY) -> None:
    """Raise `SettingsError` if one of the `fields`, which are chosen in another way, is among the settings."""
    for field in fields:
        if field in settings:
            raise SettingsError(f"{field} is {settings[field]!r} among the settings, but it is chosen by "
                                f"{CHOSEN_BY[field]}")


def for_strategy(settings: Mapping[str, Any], strategy: str, strategies: Sequence[str]) -> dict[str, Any]:
    """Return the settings that concern one strategy, with dotted keys resolved; those for it alone win.

    Raises `SettingsError` for options that are not a table, and for a strategy, a seed, or a data set for one strategy.
    """
    general: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, value in settings.items():
        owner, _, rest = key.partition(".")
        if owner not in strategies or not rest:
            general = joined(general, _resolved(key, value))
        elif owner == strategy:
            own = joined(own, _resolved(rest, value))
    refuse_chosen(general, ("strategy", "seed"))
    refuse_chosen(own)
    return merged(general, own)


def _resolved(key: str, value: Any) -> dict[str, Any]:
    """Return a setting by its name; "options.key" is one of the strategy's own."""
    if key.startswith("options."):
        return {"options": {key.removeprefix("options."): value}}
    return {key: value}


def suited(settings: Mapping[str, Any], preset: str | None, strategies: Sequence[str]) -> dict[str, Any]:
    """Return settings with those that suit a table of the user's own below them; others, and with a preset, unchanged.

    Args:
        settings: What the user set, by name, possibly for single strategies.
        preset: Name of published settings, or None.
        strategies: Names of the strategies that will run.

    Raises:
        SettingsError: If a setting is not allowed.
        ValueError: If the table cannot be used.
        FileNotFoundError: If it is not there.
    """
    if not is_own(settings) or preset is not None:
        return dict(settings)
    known = {*Task.model_fields, "clip_norm"} & settings.keys()
    made = Experiment(**{"clip_norm": _CLIP_NORM, **{name: settings[name] for name in known}})
    clip_norm = made.clip_norm
    fitting: dict[str, Any] = {"target_epsilon": _EPSILON, "clip_norm": clip_norm, "epochs": _EPOCHS}
    if made.partition == NODES:  # whose number of records is not known yet
        fitting |= {} if "batch_size" in settings or settings.get("sync") == "epoch" else {"sampling_rate": _SHARE}
    elif not {"batch_size", "delta"} <= settings.keys():
        records = len(made.task.data().train)
        fitting |= {"delta": min(1e-6, 1 / (10 * records)), "batch_size": max(1, round(_SHARE * records))}
    if not {"model", "hidden"} & settings.keys():
        fitting |= {"model": "logistic"}
        needed = {name: find_strategy(name).settings for name in strategies}
        fitting |= {f"{name}.{key}": value for name, own in needed.items() for key, value in own.items()}
    if "optimizer" not in settings:
        fitting |= {"learning_rate": _RATE / max(clip_norm, _CLIP_NORM), "momentum": _MOMENTUM}
        fitting |= {f"{name}.momentum": 0.0 for name in strategies  # plain SGD, or an optimiser of its own
                    if find_strategy(name).protects == "participant" or f"{name}.optimizer" in settings}
    return merged(fitting, settings)


def is_own(settings: Mapping[str, Any]) -> bool:
    """Return whether the records are the user's, not a built-in data set's."""
    named = settings.get("csv") or settings.get("partition") == NODES
    return bool(named) or str(settings.get("dataset", "")).startswith(HUGGING_FACE)
