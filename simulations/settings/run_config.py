"""The run config of `flwr run .`: which keys it has, and what they say.

Flower refuses a key that [tool.flwr.app.config] of pyproject.toml does not list, so the list holds every field of an
experiment, with dashes. `python -m simulations.settings.run_config` writes it. The key `settings` reaches a field
that a list does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedfair.moments.heads import Constraint
from fedfair.protocol.fields import marked
from simulations.settings.catalogue import lists, sections
from simulations.settings.experiment import Experiment, SettingsError, in_words
from simulations.settings.names import pairs, parsed

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
_HEADER = "[tool.flwr.app.config]\n"
OPENING = {"dataset": "digits", "strategy": "dpsgd-f", "preset": "flower"}
"""What `flwr run .` runs where nothing is given."""


class FitSettings(BaseModel):
    """What a run config asks of a fit over nodes that keep their files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fit: bool = Field(
        default=False,
        description="Whether to fit a model under one epsilon, as `fedfair fit` does, over nodes that keep their "
                    "files.")
    schema_: str | None = Field(
        default=None, alias="schema",
        description="Schema that all nodes agreed on, a file on the server's machine; only with fit, as the next ones.")
    epsilon: Annotated[float, Field(ge=1e-3, le=1e3)] = Field(
        default=1.0,
        description="Epsilon that every record is kept within, by all that is released.")
    gap: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="Largest gap between groups that is allowed, on validation records; by default that of the most "
                    "accurate model.")
    constraint: Constraint = Field(
        default="demographic_parity",
        description="Of what the gap is.")

    @model_validator(mode="after")
    def _only_of_a_fit(self) -> FitSettings:
        """Refuse settings of a fit where none is asked for, and a fit without a schema."""
        named = sorted(self.model_fields_set - {"fit"})
        if named and not self.fit:
            name = named[0].rstrip("_")
            raise ValueError(f"{name} is given, which is for a fit: take fit = true too, or leave {name} out")
        if self.fit and self.schema_ is None:
            raise ValueError("fit is true, but no schema is given, and the server has no file to read one from: name "
                             "the one that all nodes agreed on, for example schema = \"study.toml\"")
        return self


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
    of_experiments = (setting.name for part in sections().values() for setting in part)
    names = [*RunSettings.model_fields, *_names_of_fits(), *of_experiments]
    return {name.replace("_", "-"): OPENING.get(name, "") for name in names}


def read(config: Mapping[str, Any]) -> tuple[RunSettings, dict[str, Any]]:
    """Return what a run config says of the run, and the experiment's settings.

    `options` is text, "key=value key=value", and lists and tables are text in TOML, "[64, 32]". Raises
    `SettingsError`, or `ValueError` for text that is not key=value.
    """
    fits = _names_of_fits()
    given = {key.replace("-", "_"): value for key, value in config.items() if value != "" and key not in fits}
    try:
        run = RunSettings(**{name: given.pop(name) for name in RunSettings.model_fields if name in given})
    except ValidationError as error:
        raise SettingsError(in_words(error, RunSettings.model_fields)) from None
    return run, _settings(given, run.settings)


def read_fit(config: Mapping[str, Any]) -> FitSettings:
    """Return what a run config asks of a fit; raise `SettingsError` for what cannot be asked."""
    given = {name: config[name] for name in _names_of_fits() if config.get(name, "") != ""}
    try:
        return FitSettings(**given)
    except ValidationError as error:
        raise SettingsError(in_words(error, _names_of_fits())) from None


def _names_of_fits() -> list[str]:
    """Return the keys of fits."""
    return [field.alias or name for name, field in FitSettings.model_fields.items()]


def _settings(given: Mapping[str, Any], more: str) -> dict[str, Any]:
    """Return the experiment's settings of a run config, and those of its key `settings`."""
    in_toml = {*lists(), *marked(Experiment, "by_group")}
    settings = {name: parsed(value) if name in in_toml and isinstance(value, str) else value
                for name, value in given.items()}
    options = pairs(str(given.get("options", "")).split())
    return {**settings, "options": options, **pairs(more.split())}


def with_keys(pyproject: str) -> str:
    """Return the text of a pyproject.toml with all keys in place of its run config."""
    before, header, rest = pyproject.partition(_HEADER)
    _, bracket, after = rest.partition("\n[")
    block = "".join(f'{key} = "{value}"\n' for key, value in keys().items())
    return before + header + block + bracket + after


if __name__ == "__main__":
    PYPROJECT.write_text(with_keys(PYPROJECT.read_text(encoding="utf-8")), encoding="utf-8")
