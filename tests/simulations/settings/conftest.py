"""A field that is newer than saved settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pydantic.fields import FieldInfo

from simulations.settings.experiment import Experiment


@pytest.fixture
def add_field() -> Iterator[Callable[[], None]]:
    """Return a call that adds the field `patience` to `Experiment`, with the default 3, until the test ends."""
    def add() -> None:
        Experiment.__pydantic_fields__["patience"] = FieldInfo(
            annotation=float, default=3.0, description="Epochs without progress before a run gives up.")
        Experiment.model_rebuild(force=True)

    yield add
    Experiment.__pydantic_fields__.pop("patience", None)
    Experiment.model_rebuild(force=True)
