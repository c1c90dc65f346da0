"""Bank marketing (Moro et al. 2014), cleaned by Le Quy et al. 2022; 40,004 records."""

from __future__ import annotations

import pandas as pd

from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.datasets.schema import Schema
from fedfair.datasets.table import from_frame
from fedfair.plugins.registry import unknown

_FILE = PublicFile(
    "bank-full.csv", "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/bank-full.csv",
    "03e78e93396e664a079dff3e1df1b40b6359b1f9945adfb9a09ceabd0fb79193",
)
_NUMERIC = ("age", "balance", "day", "duration", "campaign", "pdays", "previous")
GROUPS = ("marital",)
VARIANTS: dict[str, dict[str, int]] = {}
PUBLIC = Schema.of(
    "categories: the description at UCI, data set 222; ranges: round numbers, beyond which amounts count as the "
    "largest",
    ranges={"age": (18, 95), "balance": (-2_000, 20_000), "day": (1, 31), "duration": (0, 2_000), "campaign": (1, 20),
            "pdays": (-1, 400), "previous": (0, 10)},
    categories={
        "job": "admin., unknown, unemployed, management, housemaid, entrepreneur, student, blue-collar, self-employed, "
               "retired, technician, services",
        "marital": "married, divorced, single", "education": "unknown, secondary, primary, tertiary",
        "default": "yes, no", "housing": "yes, no", "loan": "yes, no", "contact": "unknown, telephone, cellular",
        "month": "jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec",
        "poutcome": "unknown, other, failure, success"})


def load(group: str | None = None) -> GroupedDataset:
    """Load the records; label 1 is a subscribed deposit.

    `group` is "marital", married or single; raises `ValueError` for another. The published file lacks the 5,207
    divorced people of the original 45,211.
    """
    if group not in (None, *GROUPS):
        raise unknown("protected attribute of bank", group, GROUPS)
    return from_frame(pd.read_csv(fetch(_FILE)), label="y", group="marital", numeric=_NUMERIC)
