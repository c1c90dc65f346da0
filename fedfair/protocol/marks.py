"""Marks of a setting's field beyond type, default and description, kept in `json_schema_extra`.

- `replaces`: the setting that this one makes meaningless.
- `belongs_to`: the setting that it suits one value of; where that changes, a preset's value is not taken over.
- `chosen_by`: the option of commands, and the key of sweeps, that chooses it in place of a setting.
- `allowed`: what it allows, in words, where its type does not say it.
- `records`: whether it decides which records are trained and tested on.
- `same_releases`: whether it says only what is measured, where it is computed, or what is chosen from releases, so that
  a seeded run has the same noise whatever its value (see `strategies.server.noise_key`).
- `decided_by_app`: whether an existing Flower app decides it (see `strategies.server.existing_app`).
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def marked(settings: type[BaseModel], mark: str) -> dict[str, Any]:
    """Return the fields of `settings` that carry a mark, each with the mark's value."""
    extras = {name: field.json_schema_extra for name, field in settings.model_fields.items()}
    return {name: extra[mark] for name, extra in extras.items() if isinstance(extra, dict) and mark in extra}
