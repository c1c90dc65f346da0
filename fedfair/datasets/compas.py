"""COMPAS, two years after release (ProPublica 2016), cleaned by Le Quy et al. 2022; 5,278 records."""

from __future__ import annotations

import pandas as pd

from fedfair.datasets.files import PublicFile, fetch
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.table import from_frame
from fedfair.registry import unknown

_FILE = PublicFile(
    "compas-scores-two-years.csv", "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/compas-scores-two-years_clean.csv",
    "832af43c081018d479003dc3769eff65e87ab27dfb2bc1b4e733ae7b28b5a419",
)
_COLUMNS = ["age_cat", "race", "sex", "priors_count", "c_charge_degree", "score_text", "v_score_text"]
_RACES = ("African-American", "Caucasian")
VARIANTS: dict[str, dict[str, int]] = {}


def load(group: str | None = None) -> GroupedDataset:
    """African-Americans and Caucasians; label 1, the good outcome, is nobody charged again within two years.

    `group` is "race" (default) or "sex"; raises `ValueError` for another.
    """
    if group not in (None, "race", "sex"):
        raise unknown("protected attribute of compas", group, ("race", "sex"))
    frame = pd.read_csv(fetch(_FILE))
    frame = frame[frame["race"].isin(_RACES)]
    table = frame[_COLUMNS].assign(not_charged=1 - frame["two_year_recid"])
    return from_frame(table, label="not_charged", group=group or "race", numeric=("priors_count",))
