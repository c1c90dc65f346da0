"""All settings in words, from their fields: for `fedfair settings`, the help texts and docs/settings.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from fedfair.protocol.task import Task
from simulations.settings.experiment import Experiment
from strategies import STRATEGIES, find_strategy
from strategies.server.threshold_settings import ThresholdSettings
from strategies.server.training import Training

_NAMES = {"number": "number", "integer": "whole number", "string": "text", "boolean": "true or false",
          "object": "table"}
_LIMITS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}


class Setting(NamedTuple):
    """One setting in words: its name, its default ("" if it is not set), what is allowed, and what it means."""

    name: str
    default: str
    allowed: str
    meaning: str


def settings_of(model: type[BaseModel], prefix: str = "") -> list[Setting]:
    """Return the fields of a model in words, in order, their names behind `prefix`."""
    schema = model.model_json_schema()
    return [Setting(prefix + name, _written(field.get("default")),
                    _allowed(field, schema.get("$defs", {})) + ", or a table of it by group" * ("by_group" in field),
                    field.get("description", ""))
            for name, field in schema.get("properties", {}).items()]


def sections() -> dict[str, list[Setting]]:
    """Return the settings of an experiment in words, by title."""
    left = {setting.name: setting for setting in settings_of(Experiment)}
    parts: dict[str, type[BaseModel]] = {
        "Threshold": ThresholdSettings, "Training": Training, "Data and model": Task, "Method": Experiment}
    taken = {title: [left.pop(name) for name in part.model_fields if name in left] for title, part in parts.items()}
    return dict(reversed(taken.items()))


def options_of(strategy: str) -> list[Setting]:
    """Return a strategy's own options in words; raise `ValueError` for an unknown strategy."""
    return settings_of(find_strategy(strategy).Options, "options.")


def options_by_strategy() -> dict[str, list[Setting]]:
    """Return the options of every published strategy that has some."""
    return {name: options for name in STRATEGIES if (options := options_of(name))}


def meaning(name: str) -> str:
    """Return what a setting of an experiment means."""
    return Experiment.model_fields[name].description or ""


def lists() -> set[str]:
    """Return the names of the settings that are lists, and so never a text."""
    fields = Experiment.model_json_schema()["properties"]
    return {name for name, field in fields.items()
            if any(kind.get("type") == "array" for kind in (field, *field.get("anyOf", [])))}


def _written(value: Any) -> str:
    """Return a default as people write it; "" for None."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value)


def _allowed(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return what a field of a JSON schema allows, in words; None is not among it."""
    if "allowed" in field:
        return str(field["allowed"])
    if "$ref" in field:
        return _allowed(definitions[field["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in field:
        kinds = [_allowed(kind, definitions) for kind in field["anyOf"] if kind.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in field or "const" in field:
        return ", ".join(map(str, field.get("enum", [field.get("const")])))
    if field.get("type") == "array":
        return f"list of {_items(field, definitions)}"
    limits = [f"{sign} {field[limit]:g}" for limit, sign in _LIMITS.items() if limit in field]
    return " ".join([_NAMES.get(field.get("type", ""), "any value"), ", ".join(limits)]).strip()


def _items(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return what the items of a list are, in words; of a list of fixed length, with their number."""
    if "prefixItems" not in field:
        return _allowed(field.get("items", {}), definitions)
    items = [_allowed(item, definitions) for item in field["prefixItems"]]
    return f"{len(items)} ({'; '.join(dict.fromkeys(items))})"
