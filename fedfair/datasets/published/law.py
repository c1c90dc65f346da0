"""Law school admissions (Wightman 1998), cleaned by Le Quy et al. 2022; 20,798 records."""

from __future__ import annotations

import pandas as pd

from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.datasets.schema import Schema
from fedfair.datasets.table import from_frame
from fedfair.plugins.registry import unknown

_FILE = PublicFile(
    "law_school_clean.csv",
    "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/law_school_clean.csv",
    "23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452",
)
_NUMERIC = ("decile1b", "decile3", "lsat", "ugpa", "zfygpa", "zgpa")
GROUPS = ("race",)
VARIANTS: dict[str, dict[str, int]] = {}
PUBLIC = Schema.of(
    "the scales of the columns: deciles, LSAT scores of the time (10 to 48), grade points up to 4, standardised grades "
    "within 4 deviations, five classes of family income, six tiers of schools (Wightman 1998)",
    ranges={"decile1b": (1, 10), "decile3": (1, 10), "lsat": (10, 48), "ugpa": (0, 4), "zfygpa": (-4, 4),
            "zgpa": (-4, 4)},
    categories={"fulltime": "1.0, 2.0", "fam_inc": "1.0, 2.0, 3.0, 4.0, 5.0", "male": "0.0, 1.0",
                "tier": "1.0, 2.0, 3.0, 4.0, 5.0, 6.0", "race": "White, Non-White"})


def load(group: str | None = None) -> GroupedDataset:
    """Load the records; label 1 is a passed bar exam, and fulltime, fam_inc, male, tier and race are one-hot.

    `group` is "race", White or Non-White; raises `ValueError` for another.
    """
    if group not in (None, *GROUPS):
        raise unknown("protected attribute of law", group, GROUPS)
    return from_frame(pd.read_csv(fetch(_FILE)), label="pass_bar", group="race", numeric=_NUMERIC)
