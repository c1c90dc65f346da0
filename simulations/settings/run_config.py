"""The run config of `flwr run .`: which keys it has, and what they say.

Flower refuses a key that [tool.flwr.app.config] of pyproject.toml does not list, so the list holds every field of an
experiment, with dashes. `python -m simulations.settings.run_config` writes it. The key `settings` reaches a field
that a list does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulations.settings.catalogue import lists, sections
from simulations.settings.experiment import SettingsError, in_words
from simulations.settings.settings_text import pairs, parsed

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
_HEADER = "[tool.flwr.app.config]\n"
_OPENING = {"dataset": "digits", "strategy": "dpsgd-f", "preset": "flower"}
"""What `flwr run .` runs where nothing is given."""


class RunSettings(BaseModel):
    """What a run config says beside the experiment's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str | None = Field(
        default=None,
        description="Published settings, as after --preset.")
    settings: str = Field(
        default="",
        description="Settings as after --set, key=value key=value; they win over the other keys.")
    out: str | None = Field(
        default=None,
        description="Folder of the results, by default fedfair-results/RUN-ID where the SuperLink was started.")
    checkpoint_every: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Rounds between checkpoints in the folder of the results.")


def keys() -> dict[str, str]:
    """Return every key with its value in pyproject.toml; "" where the preset or the field's default decides."""
    names = [*RunSettings.model_fields, *(setting.name for part in sections().values() for setting in part)]
    return {name.replace("_", "-"): _OPENING.get(name, "") for name in names}


def read(config: Mapping[str, Any]) -> tuple[RunSettings, dict[str, Any]]:
    """Return what a run config says of the run, and the experiment's settings.

    `options` is text, "key=value key=value", and lists and tables are text in TOML, "[64, 32]". Raises
    `SettingsError`, or `ValueError` for text that is not key=value.
    """
    given = {key.replace("-", "_"): value for key, value in config.items() if value != ""}
    try:
        run = RunSettings(**{name: given.pop(name) for name in RunSettings.model_fields if name in given})
    except ValidationError as error:
        raise SettingsError(in_words(error, RunSettings.model_fields)) from None
    in_toml = lists()
    settings = {name: parsed(value) if name in in_toml and isinstance(value, str) else value
                for name, value in given.items()}
    options = pairs(str(given.get("options", "")).split())
    return run, {**settings, "options": options, **pairs(run.settings.split())}


def with_keys(pyproject: str) -> str:
    """Return the text of a pyproject.toml with all keys in place of its run config."""
    before, header, rest = pyproject.partition(_HEADER)
    _, bracket, after = rest.partition("\n[")
    block = "".join(f'{key} = "{value}"\n' for key, value in keys().items())
    return before + header + block + bracket + after


if __name__ == "__main__":
    PYPROJECT.write_text(with_keys(PYPROJECT.read_text(encoding="utf-8")), encoding="utf-8")
