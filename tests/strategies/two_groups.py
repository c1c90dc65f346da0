"""Small generated file with two groups and two classes, for strategies that accept nothing else."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

_FOLDER = TemporaryDirectory(prefix="two-groups-")


@cache
def two_groups(records: int = 200) -> dict[str, str]:
    """Return settings of an experiment on it: group "b" has a quarter of the records, shifted and less separable."""
    draws = np.random.default_rng(0)
    group = np.where(np.arange(records) % 4 == 3, "b", "a")
    x = draws.normal(size=(records, 5)) + (group == "b")[:, None]
    score = x @ [1.0, -1.0, 0.5, 0.0, 0.0] + draws.normal(size=records) * np.where(group == "b", 2.0, 0.5)
    frame = pd.DataFrame(x, columns=list("pqrst")).assign(group=group, label=(score > 0).astype(int))
    file = Path(_FOLDER.name) / f"two_groups_{records}.csv"
    frame.to_csv(file, index=False)
    return {"csv": str(file), "label": "label", "group": "group"}
