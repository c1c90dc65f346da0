"""Adult (census income): UCI Machine Learning Repository, data set 2; 45,222 complete records."""

from __future__ import annotations

import pandas as pd

from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.datasets.schema import Schema
from fedfair.datasets.table import from_frame
from fedfair.plugins.registry import unknown

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_FILES = (
    PublicFile("adult.data", _URL + "adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    PublicFile("adult.test", _URL + "adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)
_NUMERIC = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_COLUMNS = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
            "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income")
GROUPS = ("sex", "race")
VARIANTS = {"balanced": {"Male": 14_000, "Female": 14_000}, "all-women": {"Male": 14_695, "Female": 14_695}}
PUBLIC = Schema.of(
    "categories: adult.names, beside the data at UCI; ranges: adult.names (over 16 years, 16 levels of education, over "
    "0 hours) and round numbers, beyond which amounts count as the largest",
    ranges={"age": (17, 90), "education-num": (1, 16), "capital-gain": (0, 20_000), "capital-loss": (0, 4_000),
            "hours-per-week": (1, 99)},
    categories={
        "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, "
                     "Never-worked",
        "education": "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, 12th, "
                     "Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
        "marital-status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, "
                          "Married-AF-spouse",
        "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
                      "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, "
                      "Priv-house-serv, Protective-serv, Armed-Forces",
        "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
        "race": "White, Non-White",
        "sex": "Female, Male",
        "native-country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, Outlying-US(Guam-USVI-etc), "
                          "India, Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, "
                          "Jamaica, Vietnam, Mexico, Portugal, Ireland, France, Dominican-Republic, Laos, Ecuador, "
                          "Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, Scotland, Thailand, Yugoslavia, "
                          "El-Salvador, Trinadad&Tobago, Peru, Hong, Holand-Netherlands"})


def load(group: str | None = None) -> GroupedDataset:
    """Load both published files, dropping rows with "?" and the column fnlwgt; race is White or Non-White.

    Label 1 is an income above 50K. `group` is "sex" (default) or "race"; raises `ValueError` for another.
    """
    group = group or GROUPS[0]
    if group not in GROUPS:
        raise unknown("protected attribute of adult", group, GROUPS)
    frame = pd.concat([
        pd.read_csv(fetch(file), names=list(_COLUMNS), skiprows=skip, skipinitialspace=True, na_values="?")
        for file, skip in zip(_FILES, (0, 1), strict=True)
    ], ignore_index=True)
    frame = frame.dropna().drop(columns="fnlwgt")
    frame["race"] = frame["race"].where(frame["race"] == "White", "Non-White")
    frame["income"] = frame["income"].str.rstrip(".")
    return from_frame(frame, label="income", group=group, numeric=_NUMERIC)
