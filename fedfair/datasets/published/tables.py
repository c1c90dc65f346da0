"""Public tables of people with a label and protected attributes: Adult, and five that Le Quy et al. 2022 cleaned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from types import MappingProxyType
from typing import NamedTuple

import pandas as pd

from fedfair.datasets import Source
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.datasets.schema import Schema
from fedfair.datasets.table import from_frame
from fedfair.plugins.registry import unknown

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_LE_QUY = "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/experiments/data/"


class Table(NamedTuple):
    """A published table.

    Attributes:
        name: Name of the data set.
        rows: Reads its records, with the label, the protected attributes and the columns of features.
        label: Column of the label.
        groups: Protected attributes, the usual one first.
        public: What everybody knows of its columns.
        numeric: Columns of numbers; all others are one-hot.
        variants: Numbers of records that published variants keep of each group.
    """

    name: str
    rows: Callable[[], pd.DataFrame]
    label: str
    groups: tuple[str, ...]
    public: Schema
    numeric: tuple[str, ...] = ()
    variants: Mapping[str, Mapping[str, int]] = MappingProxyType({})

    def load(self, group: str | None = None) -> GroupedDataset:
        """Load the records, grouped by a protected attribute, or by the usual one; raise `ValueError` for another."""
        group = group or self.groups[0]
        if group not in self.groups:
            raise unknown(f"protected attribute of {self.name}", group, self.groups)
        return from_frame(self.rows(), label=self.label, group=group, numeric=self.numeric)


def _cleaned(name: str, sha256: str) -> Callable[[], pd.DataFrame]:
    """Return what reads a table that Le Quy et al. 2022 (survey of data sets for fair learning) cleaned."""
    return partial(_read, PublicFile(name, _LE_QUY + name, sha256))


def _read(file: PublicFile) -> pd.DataFrame:
    """Read a file with the names of its columns."""
    return pd.read_csv(fetch(file))


_ADULT_FILES = (
    PublicFile("adult.data", _UCI + "adult/adult.data",
               "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    PublicFile("adult.test", _UCI + "adult/adult.test",
               "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)
_ADULT_COLUMNS = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
                  "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
                  "income")


def _adult() -> pd.DataFrame:
    """Read both published files, dropping rows with "?" and the column fnlwgt; race is White or Non-White."""
    frame = pd.concat([
        pd.read_csv(fetch(file), names=list(_ADULT_COLUMNS), skiprows=skip, skipinitialspace=True, na_values="?")
        for file, skip in zip(_ADULT_FILES, (0, 1), strict=True)
    ], ignore_index=True)
    frame = frame.dropna().drop(columns="fnlwgt")
    frame["race"] = frame["race"].where(frame["race"] == "White", "Non-White")
    frame["income"] = frame["income"].str.rstrip(".")
    return frame


_ADULT_PUBLIC = Schema.of(
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

ADULT = Table(
    "adult", _adult, label="income", groups=("sex", "race"),
    numeric=("age", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
    variants={"balanced": {"Male": 14_000, "Female": 14_000}, "all-women": {"Male": 14_695, "Female": 14_695}},
    public=_ADULT_PUBLIC)
"""Census income: UCI Machine Learning Repository, data set 2; 45,222 complete records; label 1 is above 50K."""

_BANK_PUBLIC = Schema.of(
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

BANK = Table(
    "bank", _cleaned("bank-full.csv", "03e78e93396e664a079dff3e1df1b40b6359b1f9945adfb9a09ceabd0fb79193"),
    label="y", groups=("marital",),
    numeric=("age", "balance", "day", "duration", "campaign", "pdays", "previous"),
    public=_BANK_PUBLIC)
"""Bank marketing (Moro et al. 2014), 40,004 records; label 1 is a subscribed deposit.

The groups are married and single: the published file lacks the 5,207 divorced people of the original 45,211.
"""

_NAMELESS = ["sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count",
             "c_charge_degree", "decile_score", "score_text", "v_decile_score", "v_score_text", "two_year_recid"]
_COMPAS_COLUMNS = ["age_cat", "race", "sex", "priors_count", "c_charge_degree", "score_text", "v_score_text",
                   "two_year_recid"]
_RACES = ("African-American", "Caucasian")


def _without_names(content: bytes) -> bytes:
    """Return the file with only the columns that identify nobody; the published one has names and dates of birth."""
    return pd.read_csv(BytesIO(content))[_NAMELESS].to_csv(index=False).encode()


_COMPAS_FILE = PublicFile(
    "compas-scores-two-years.csv", _LE_QUY + "compas-scores-two-years_clean.csv",
    "832af43c081018d479003dc3769eff65e87ab27dfb2bc1b4e733ae7b28b5a419", content=_without_names)


def _compas() -> pd.DataFrame:
    """Read African-American and Caucasian defendants, with the good outcome as 1."""
    frame = pd.read_csv(fetch(_COMPAS_FILE))[_COMPAS_COLUMNS]
    frame = frame[frame["race"].isin(_RACES)]
    return frame.assign(two_year_recid=1 - frame["two_year_recid"])


_COMPAS_PUBLIC = Schema.of(
    "categories: ProPublica's description of the file, with the two races that are taken; range: a round number, "
    "beyond which offences count as the most",
    ranges={"priors_count": (0, 30)},
    categories={"age_cat": "Less than 25, 25 - 45, Greater than 45", "race": ", ".join(_RACES), "sex": "Female, Male",
                "c_charge_degree": "F, M", "score_text": "Low, Medium, High", "v_score_text": "Low, Medium, High"})

COMPAS = Table(
    "compas", _compas, label="two_year_recid", groups=("race", "sex"), numeric=("priors_count",),
    public=_COMPAS_PUBLIC)
"""COMPAS risk scores (ProPublica 2016), 5,278 defendants; label 1, the good outcome, is no new offence in two years."""

_MONTHS = range(1, 7)
_STATES = ", ".join(map(str, range(-2, 10)))
_read_credit = _cleaned("credit-card-clients.csv", "7cfc3bb35b6986be40cccb5d490806f082b46f93afafdce27fd7f409eb5abb02")


def _credit() -> pd.DataFrame:
    """Read the records, with the names of male, 1 in the file, and female, 2."""
    frame = _read_credit()
    frame["SEX"] = frame["SEX"].map({1: "male", 2: "female"})
    return frame


_CREDIT_PUBLIC = Schema.of(
    "categories: the description at UCI, data set 350, and codes that it leaves unexplained; ranges: round numbers of "
    "Taiwan dollars and years, beyond which amounts count as the largest",
    ranges={"LIMIT_BAL": (0, 1_000_000), "AGE": (20, 80), **{f"BILL_AMT{m}": (0, 500_000) for m in _MONTHS},
            **{f"PAY_AMT{m}": (0, 100_000) for m in _MONTHS}},
    categories={"SEX": "male, female", "EDUCATION": "0, 1, 2, 3, 4, 5, 6", "MARRIAGE": "0, 1, 2, 3",
                **{f"PAY_{m}": _STATES for m in (0, 2, 3, 4, 5, 6)}})

CREDIT = Table(
    "credit", _credit, label="default payment", groups=("SEX",),
    numeric=("LIMIT_BAL", "AGE", *(f"BILL_AMT{m}" for m in _MONTHS), *(f"PAY_AMT{m}" for m in _MONTHS)),
    public=_CREDIT_PUBLIC)
"""Default of credit card clients (Yeh and Lien 2009), 30,000 records; label 1 is a default on the next payment.

SEX, EDUCATION, MARRIAGE and the states of past payments are one-hot.
"""

_DUTCH_PUBLIC = Schema.of(
    "the codes that the header of dutch_census_2001.arff lists, which Le Quy et al. 2022 publish beside the table",
    categories={
        "sex": "male, female", "age": ", ".join(map(str, range(1, 18))),
        "household_position": "1110, 1121, 1122, 1131, 1132, 1140, 1210, 1220",
        "household_size": "111, 112, 113, 114, 125, 126", "prev_residence_place": "1, 2, 9", "citizenship": "1, 2, 3",
        "country_birth": "1, 2, 3", "edu_level": "0, 1, 2, 3, 4, 5, 9",
        "economic_status": "111, 112, 120, 210, 221, 222, 223, 224",
        "cur_eco_activity": "111, 122, 124, 131, 132, 133, 134, 135, 136, 137, 138, 139, 200",
        "marital_status": "1, 2, 3, 4"})

DUTCH = Table(
    "dutch", _cleaned("dutch.csv", "c0e1df7e2ca07fa84aa99b5565c7b782a381e2fab377648a6d920174d04ce090"),
    label="occupation", groups=("sex",),
    variants={"unbalanced": {"male": 30_000, "female": 10_000}, "mostly-female": {"female": 30_000, "male": 10_000}},
    public=_DUTCH_PUBLIC)
"""Dutch census 2001, 60,420 records, every column one-hot; label 1 is an occupation of high level."""

_LAW_PUBLIC = Schema.of(
    "the scales of the columns: deciles, LSAT scores of the time (10 to 48), grade points up to 4, standardised grades "
    "within 4 deviations, five classes of family income, six tiers of schools (Wightman 1998)",
    ranges={"decile1b": (1, 10), "decile3": (1, 10), "lsat": (10, 48), "ugpa": (0, 4), "zfygpa": (-4, 4),
            "zgpa": (-4, 4)},
    categories={"fulltime": "1.0, 2.0", "fam_inc": "1.0, 2.0, 3.0, 4.0, 5.0", "male": "0.0, 1.0",
                "tier": "1.0, 2.0, 3.0, 4.0, 5.0, 6.0", "race": "White, Non-White"})

LAW = Table(
    "law", _cleaned("law_school_clean.csv", "23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452"),
    label="pass_bar", groups=("race",), numeric=("decile1b", "decile3", "lsat", "ugpa", "zfygpa", "zgpa"),
    public=_LAW_PUBLIC)
"""Law school admissions (Wightman 1998), 20,798 records; label 1 is a passed bar exam.

The groups are White and Non-White; fulltime, fam_inc, male, tier and race are one-hot.
"""

SOURCES = {table.name: Source(table.load, table.variants, table.public, table.groups[0])
           for table in (ADULT, BANK, COMPAS, CREDIT, DUTCH, LAW)}
"""The tables by name."""
