"""Made-up tables for fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def people(records: int = 6000, seed: int = 0, favoured: float = 0.8) -> pd.DataFrame:
    """Return records of people: two groups, one `favoured`, numbers with missing values, categories, an identifier."""
    draws = np.random.default_rng(seed)
    group = draws.integers(0, 2, records)
    age, hours = draws.integers(18, 80, records), (draws.normal(36, 9, records) + 5 * group).round(1)
    school = draws.choice(["primary", "secondary", "college", "university"], records)
    score = (age - 45) / 20 + (hours - 38) / 9 + favoured * group + np.where(school == "university", 1.5, 0.0)
    hired = np.where(score + draws.logistic(size=records) > 1, "yes", "no")
    frame = pd.DataFrame({"age": age, "hours": hours, "school": school, "sex": np.where(group == 1, "m", "f"),
                          "postcode": draws.integers(10_000, 99_999, records).astype(str), "hired": hired})
    frame.loc[draws.random(records) < 0.05, "hours"] = np.nan
    frame.loc[draws.random(records) < 0.03, "school"] = None
    return frame


def file(folder: Path, records: int = 6000, seed: int = 0) -> Path:
    """Write such a table to a CSV file."""
    path = folder / "people.csv"
    people(records, seed).to_csv(path, index=False)
    return path
