"""Tables with every kind of column, and the folders of their fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulations.fitting.fit import Wanted, fit
from simulations.fitting.save import save
from tests.simulations.fitting.forms import SETTINGS, table


def people(rows: int = 3000) -> pd.DataFrame:
    """Return a table: numbers and categories, each with missing values, two groups, and a column of an awkward name."""
    draws = np.random.default_rng(5)
    income, town = draws.normal(3000, 700, rows).round(), draws.choice(["North", "South", "East"], rows)
    return pd.DataFrame({
        "income": np.where(draws.random(rows) < .05, np.nan, income),
        "age": draws.integers(18, 90, rows), "town": np.where(draws.random(rows) < .05, None, town),
        "label": draws.choice(["a, b", 'says "no"', "ütf"], rows), "sex": draws.choice(["f", "m"], rows),
        "outcome": np.where(income / 700 + (town == "North") + draws.normal(0, .3, rows) > 4.5, "yes", "no")})


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit of `people`, with bands of ages as groups that the model sees."""
    settings = {"ranges": {"income": (0, 8000)}, "bands": {"age": [30, 60]}, "attribute_in_model": True}
    made = fit(Wanted(people(), "outcome", "age,sex", 5.0, settings=settings))
    out = tmp_path_factory.mktemp("fits") / "people"
    save(made, out)
    return out


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a fit of `forms.table`."""
    out = tmp_path_factory.mktemp("fits") / "ill"
    save(fit(Wanted(table(), "ill", "sex", 20.0, settings=SETTINGS)), out)
    return out
