"""Default of credit card clients (Yeh and Lien 2009), cleaned by Le Quy et al. 2022; 30,000 records."""

from __future__ import annotations

import pandas as pd

from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.datasets.schema import Schema
from fedfair.datasets.table import from_frame
from fedfair.plugins.registry import unknown

_FILE = PublicFile(
    "credit-card-clients.csv",
    "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/credit-card-clients.csv",
    "7cfc3bb35b6986be40cccb5d490806f082b46f93afafdce27fd7f409eb5abb02",
)
_MONTHS = range(1, 7)
_NUMERIC = ("LIMIT_BAL", "AGE", *(f"BILL_AMT{m}" for m in _MONTHS), *(f"PAY_AMT{m}" for m in _MONTHS))
GROUPS = ("SEX",)
VARIANTS: dict[str, dict[str, int]] = {}
_STATES = ", ".join(map(str, range(-2, 10)))
PUBLIC = Schema.of(
    "categories: the description at UCI, data set 350, and codes that it leaves unexplained; ranges: round numbers of "
    "Taiwan dollars and years, beyond which amounts count as the largest",
    ranges={"LIMIT_BAL": (0, 1_000_000), "AGE": (20, 80), **{f"BILL_AMT{m}": (0, 500_000) for m in _MONTHS},
            **{f"PAY_AMT{m}": (0, 100_000) for m in _MONTHS}},
    categories={"SEX": "male, female", "EDUCATION": "0, 1, 2, 3, 4, 5, 6", "MARRIAGE": "0, 1, 2, 3",
                **{f"PAY_{m}": _STATES for m in (0, 2, 3, 4, 5, 6)}})


def load(group: str | None = None) -> GroupedDataset:
    """Load the records; label 1 is a default on the next payment.

    SEX, EDUCATION, MARRIAGE and the states of past payments are one-hot.
    `group` is "SEX", male (1 in the file) or female (2); raises `ValueError` for another.
    """
    if group not in (None, *GROUPS):
        raise unknown("protected attribute of credit", group, GROUPS)
    frame = pd.read_csv(fetch(_FILE))
    frame["SEX"] = frame["SEX"].map({1: "male", 2: "female"})
    return from_frame(frame, label="default payment", group="SEX", numeric=_NUMERIC)
