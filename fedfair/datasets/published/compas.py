"""COMPAS risk scores and two-year recidivism (ProPublica 2016), cleaned by Le Quy et al. 2022; 5,278 records."""

from __future__ import annotations

from io import BytesIO

import pandas as pd

from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.datasets.schema import Schema
from fedfair.datasets.table import from_frame
from fedfair.plugins.registry import unknown

_NAMELESS = ["sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
             "c_charge_degree", "decile_score", "score_text", "v_decile_score", "v_score_text", "two_year_recid"]
_COLUMNS = ["age_cat", "race", "sex", "priors_count", "c_charge_degree", "score_text", "v_score_text",
            "two_year_recid"]
_RACES = ("African-American", "Caucasian")
GROUPS = ("race", "sex")
VARIANTS: dict[str, dict[str, int]] = {}
PUBLIC = Schema.of(
    "categories: ProPublica's description of the file, with the two races that are taken; range: a round number, "
    "beyond which offences count as the most",
    ranges={"priors_count": (0, 30)},
    categories={"age_cat": "Less than 25, 25 - 45, Greater than 45", "race": ", ".join(_RACES), "sex": "Female, Male",
                "c_charge_degree": "F, M", "score_text": "Low, Medium, High", "v_score_text": "Low, Medium, High"})


def without_names(content: bytes) -> bytes:
    """Return the file with only the columns that identify nobody; the published one has names and dates of birth."""
    return pd.read_csv(BytesIO(content))[_NAMELESS].to_csv(index=False).encode()


_FILE = PublicFile(
    "compas-scores-two-years.csv",
    "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/"
    "compas-scores-two-years_clean.csv",
    "832af43c081018d479003dc3769eff65e87ab27dfb2bc1b4e733ae7b28b5a419",
    content=without_names,
)


def load(group: str | None = None) -> GroupedDataset:
    """Load African-American and Caucasian defendants; label 1, the good outcome, is no new offence within two years.

    `group` is "race" (default) or "sex"; raises `ValueError` for another.
    """
    group = group or GROUPS[0]
    if group not in GROUPS:
        raise unknown("protected attribute of compas", group, GROUPS)
    frame = pd.read_csv(fetch(_FILE))[_COLUMNS]
    frame = frame[frame["race"].isin(_RACES)]
    frame = frame.assign(two_year_recid=1 - frame["two_year_recid"])
    return from_frame(frame, label="two_year_recid", group=group, numeric=("priors_count",))
