"""Dutch census 2001, cleaned by Le Quy et al. 2022 (survey of data sets for fair learning); 60,420 records."""

from __future__ import annotations

import pandas as pd

from fedfair.datasets.files import PublicFile, fetch
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.table import from_frame
from fedfair.plugins.registry import unknown

_FILE = PublicFile(
    "dutch.csv", "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/dutch.csv",
    "c0e1df7e2ca07fa84aa99b5565c7b782a381e2fab377648a6d920174d04ce090",
)
VARIANTS = {"unbalanced": {"male": 30_000, "female": 10_000}, "mostly-female": {"female": 30_000, "male": 10_000}}


def load(group: str | None = None) -> GroupedDataset:
    """Load the records, every column one-hot; label 1 is an occupation of high level.

    `group` is "sex"; raises `ValueError` for another.
    """
    if group not in (None, "sex"):
        raise unknown("protected attribute of dutch", group, ("sex",))
    return from_frame(pd.read_csv(fetch(_FILE)), label="occupation", group="sex")
