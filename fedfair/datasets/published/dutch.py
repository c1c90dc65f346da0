"""Dutch census 2001, cleaned by Le Quy et al. 2022 (survey of data sets for fair learning); 60,420 records."""

from __future__ import annotations

import pandas as pd

from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.datasets.schema import Schema
from fedfair.datasets.table import from_frame
from fedfair.plugins.registry import unknown

_FILE = PublicFile(
    "dutch.csv", "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/dutch.csv",
    "c0e1df7e2ca07fa84aa99b5565c7b782a381e2fab377648a6d920174d04ce090",
)
GROUPS = ("sex",)
VARIANTS = {"unbalanced": {"male": 30_000, "female": 10_000}, "mostly-female": {"female": 30_000, "male": 10_000}}
PUBLIC = Schema.of(
    "the codes that the header of dutch_census_2001.arff lists, which Le Quy et al. 2022 publish beside the table",
    categories={
        "sex": "male, female", "age": ", ".join(map(str, range(1, 18))),
        "household_position": "1110, 1121, 1122, 1131, 1132, 1140, 1210, 1220",
        "household_size": "111, 112, 113, 114, 125, 126", "prev_residence_place": "1, 2, 9", "citizenship": "1, 2, 3",
        "country_birth": "1, 2, 3", "edu_level": "0, 1, 2, 3, 4, 5, 9",
        "economic_status": "111, 112, 120, 210, 221, 222, 223, 224",
        "cur_eco_activity": "111, 122, 124, 131, 132, 133, 134, 135, 136, 137, 138, 139, 200",
        "marital_status": "1, 2, 3, 4"})


def load(group: str | None = None) -> GroupedDataset:
    """Load the records, every column one-hot; label 1 is an occupation of high level.

    `group` is "sex"; raises `ValueError` for another.
    """
    if group not in (None, *GROUPS):
        raise unknown("protected attribute of dutch", group, GROUPS)
    return from_frame(pd.read_csv(fetch(_FILE)), label="occupation", group="sex")
