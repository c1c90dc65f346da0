"""What a setting's field says beyond its type: bounds that no computer can pass, and marks for its readers.

Bounds of settings beyond which no computer can hold or finish a run, whatever the data.

Marks of a setting's field beyond type, default and description, kept in `json_schema_extra`.

- `replaces`: the setting that this one makes meaningless.
- `belongs_to`: the setting that it suits one value of; where that changes, a preset's value is not taken over.
- `chosen_by`: the option of commands, and the key of sweeps, that chooses it in place of a setting.
- `by_group`: that it may be a table with a number for each group, and whether the "largest" or the "smallest" of them
  is safe for all (see `strategies.server.by_group`).
- `allowed`: what it allows, in words, where its type does not say it.
- `records`: whether it decides which records are trained and tested on.
- `same_releases`: whether it says only what is measured, where it is computed, or what is chosen from releases, so that
  a seeded run has the same noise whatever its value (see `strategies.server.noise_key`).
- `decided_by_app`: whether an existing Flower app decides it (see `strategies.server.existing_app`).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo

MOST_STEPS = 100_000_000  # half a day, even where a step computes nothing
MOST_CLIENTS = 1_000_000
MOST_NODES = 10_000
MOST_RUNS = 1_000
MOST_JOBS = 256


def held(smallest: float, largest: float) -> AfterValidator:
    """Return a validator that raises `ValueError` for a positive number outside of these bounds.

    Args:
        smallest: Smallest number that is allowed beside 0.
        largest: Largest number that is allowed.
    """
    def check(value: float, field: ValidationInfo) -> float:
        """Return the number; raise `ValueError` if it is not held."""
        if value and not smallest <= value <= largest:
            raise ValueError(f"{field.field_name} is {value:g}, which no run can compute with: give a number from "
                             f"{smallest:g} to {largest:g}")
        return value

    return AfterValidator(check)


_HELD = held(1e-30, 1e30)  # float32 ends at 3.4e38, and loses digits below 1.2e-38

AnyPositive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AnyNotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[AnyPositive, _HELD]
NotNegative = Annotated[AnyNotNegative, _HELD]
ClipNorm = Annotated[AnyPositive, held(1e-20, 1e15)]  # with the noise and a group's bound, still within float32
NoiseMultiplier = Annotated[AnyNotNegative, held(1e-12, 1e6)]  # the grid of privacy losses grows with the noise
GroupBound = Annotated[float, Field(ge=1, allow_inf_nan=False), held(1, 1e6)]
"""How many times a group's clip norm may be as large as the clip norm."""

Probability = Annotated[float, Field(gt=0, lt=1), held(1e-100, 1)]
"""A delta."""


def marked(settings: type[BaseModel], mark: str) -> dict[str, Any]:
    """Return the fields of `settings` that carry a mark, each with the mark's value."""
    extras = {name: field.json_schema_extra for name, field in settings.model_fields.items()}
    return {name: extra[mark] for name, extra in extras.items() if isinstance(extra, dict) and mark in extra}
