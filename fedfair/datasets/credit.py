"""Default of credit card clients (Yeh and Lien 2009), cleaned by Le Quy et al. 2022; 30,000 records."""

from __future__ import annotations

import pandas as pd

from fedfair.datasets.files import PublicFile, fetch
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.table import from_frame
from fedfair.registry import unknown

_FILE = PublicFile(
    "credit-card-clients.csv", "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/credit-card-clients.csv",
    "7cfc3bb35b6986be40cccb5d490806f082b46f93afafdce27fd7f409eb5abb02",
)
_NUMERIC = ("LIMIT_BAL", "AGE", *(f"{kind}_AMT{month}" for kind in ("BILL", "PAY") for month in range(1, 7)))
VARIANTS: dict[str, dict[str, int]] = {}


def load(group: str | None = None) -> GroupedDataset:
    """Label 1 is a default on the next payment. `group` is "SEX"; raises `ValueError` for another."""
    if group not in (None, "SEX"):
        raise unknown("protected attribute of credit", group, ("SEX",))
    frame = pd.read_csv(fetch(_FILE))
    frame["SEX"] = frame["SEX"].map({1: "male", 2: "female"})
    return from_frame(frame, label="default payment", group="SEX", numeric=_NUMERIC)
