"""Files as people send them: each is read as a person would, or refused with the setting that mends it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.table import from_csv
from tests.conftest import SHARED
from tests.for_each import for_each

INPUTS = SHARED / "inputs"
LABELS = {"people.csv": "hired", "label spaces.csv": "credit decision"}
LIKE_BASE = ("bom.csv", "eu.csv", "eu_thousands.csv", "gz.csv.gz", "index_col.csv", "tab.tsv", "thousands.csv",
             "utf16.csv", "people.parquet", "people.xlsx")
READ: dict[str, tuple[int, ...]] = {
    "base.csv": (400, 7), "cats40.csv": (400, 47), "currency.csv": (400, 8), "group12.csv": (2000, 8),
    "group2.csv": (2000, 8), "imbalanced.csv": (4000, 7), "label spaces.csv": (800, 7), "label_bool.csv": (800, 7),
    "label_pm1.csv": (800, 7), "people.csv": (600, 5), "people.json": (50, 7), "tiny6.csv": (6, 7)}
MENDED: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "cats40_int.csv": ('categorical = ["zip"]', {"asked": Asked(categorical=("zip",))}, (2000, 47)),
    "dates.csv": ('without = ["opened"]', {"without": ["opened"]}, (400, 7)),
    "isodates.csv": ('opened = "date"', {"asked": Asked(quantities=(("opened", "date"),))}, (400, 8)),
    "ids_int.csv": ('without = ["customer_id"]', {"without": ["customer_id"]}, (400, 7)),
    "ids_str.csv": ('without = ["iban"]', {"without": ["iban"]}, (400, 7)),
    "latin1.csv": ('"Köln": then set encoding = "cp1252"', {"asked": Asked(encoding="cp1252")}, (400, 7)),
    "missing.csv": ('missing = "drop"', {"missing": "drop"}, (335, 7)),
    "missing_group.csv": ('missing = "drop"', {"missing": "drop"}, (394, 7)),
    "missing_label.csv": ('missing = "drop"', {"missing": "drop"}, (399, 7)),
    "missing_q.csv": ('missing = "drop"', {"missing": "drop"}, (355, 7)),
    "missing_unknown.csv": ('missing = "drop"', {"missing": "drop"}, (364, 7)),
    "quoted_decimal_comma.csv": ('decimal = { score = "," }', {"asked": Asked(decimal=(("score", ","),))}, (400, 8))}
REFUSED = {
    "dupcols.csv": "names column 'age' more than once: give each column a name of its own",
    "empty.csv": "has names of columns, but no records below them", "zero.csv": "it is empty",
    "label_const.csv": "column 'approved' has the single value '0': there must be at least two",
    "label_cont.csv": "column 'approved' has 800 different values, too many for a label: put them into",
    "ragged.csv": "in line 6, saw 6.* no row has more values than the first line has names"}

pytestmark = pytest.mark.skipif(not INPUTS.is_dir(), reason="the files are not here")


def read(name: str, **settings: Any) -> GroupedDataset:
    """Read one of the files."""
    return from_csv(INPUTS / name, LABELS.get(name, "approved"), "sex", **settings)


def test_every_file_is_in_the_table() -> None:
    files = {path.name for path in INPUTS.iterdir() if path.is_file() and path.suffix != ".py"}
    assert files == {*LIKE_BASE, *READ, *MENDED, *REFUSED}


@for_each("name", LIKE_BASE)
def test_the_same_table_is_read_from_other_formats(name: str) -> None:
    base, other = read("base.csv"), read(name)
    assert other.columns == base.columns
    assert other.categories == base.categories
    assert torch.equal(other.x, base.x)
    assert torch.equal(other.y, base.y)


@for_each("name", READ)
def test_a_file_is_read(name: str) -> None:
    assert read(name).x.shape == READ[name]


@for_each("name", MENDED)
def test_a_doubtful_file_is_refused_with_the_setting_that_mends_it(name: str) -> None:
    message, settings, shape = MENDED[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        read(name)
    assert read(name, **settings).x.shape == shape


@for_each("name", REFUSED)
def test_a_file_that_nothing_mends_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[name]):
        read(name)


def test_money_and_per_cent_are_numbers() -> None:
    data = read("currency.csv")
    assert data.x[0, :3].tolist() == [19992.22, 24, 6.8]
    assert data.encoding.reading.signs == (("income", "€"), ("rate", "%"))


def test_missing_words_are_not_zero(tmp_path: Path) -> None:
    frame = pd.read_csv(INPUTS / "missing_unknown.csv")
    assert len(read("missing_unknown.csv", missing="drop")) == (frame["income"] != "unknown").sum()
