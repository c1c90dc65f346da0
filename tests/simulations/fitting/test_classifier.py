"""The classifier among scikit-learn's tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedfair import FairPrivateClassifier
from tests.simulations.fitting.tables import people


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Return a table of people."""
    return people(12_000)


def test_it_takes_a_frame_with_text_missing_values_and_groups(rows: pd.DataFrame) -> None:
    x, y, sex = rows.drop(columns=["hired", "sex", "postcode"]), rows["hired"], rows["sex"]
    seeded = FairPrivateClassifier(epsilon=1.0, favourable="yes", random_state=0)  # one fit in a hundred has the gap
    free, fair = (made.fit(x, y, sensitive_features=sex) for made in (seeded, clone(seeded).set_params(gap=0.03)))

    def gap(made: FairPrivateClassifier) -> float:
        """Return the difference of selection rates."""
        predicted = made.predict(x) == "yes"
        return float(abs(predicted[sex == "m"].mean() - predicted[sex == "f"].mean()))

    assert gap(fair) < gap(free) - 0.05
    assert free.score(x, y) > (y == "no").mean() + 0.1
    assert free.ledger_.guarantee == "simulated"
    assert free.ledger_.epsilon() <= 1.0
    assert {"tau", "accuracy"} <= {*free.front_["metric"], *free.front_.columns}
    assert "epsilon" in free.card_
    assert free.predict_proba(x).shape == (len(x), 2)


def test_it_is_cloned_and_its_parameters_are_set() -> None:
    made = FairPrivateClassifier(epsilon=2.0, gap=0.1)
    assert clone(made).get_params() == made.get_params()
    assert made.set_params(epsilon=3.0).epsilon == 3.0


def test_groups_are_routed_through_a_pipeline() -> None:
    draws = np.random.default_rng(0)
    x, sex = draws.normal(size=(4000, 3)), draws.integers(0, 2, 4000)
    y = (x[:, 0] + draws.logistic(size=4000) * 0.5 > 0).astype(int)
    with sklearn.config_context(enable_metadata_routing=True):
        last = FairPrivateClassifier(epsilon=5.0).set_fit_request(sensitive_features=True)
        made = make_pipeline(StandardScaler(), last).fit(x, y, sensitive_features=sex)
        scores = cross_val_score(make_pipeline(StandardScaler(), clone(last)), x, y, cv=2,
                                 params={"sensitive_features": sex})
    assert made.score(x, y) > 0.75
    assert made[-1].ledger_.guarantee == "proved"
    assert made[-1].ledger_.epsilon() <= 5.0
    assert scores.min() > 0.7


def test_without_groups_it_is_a_private_classifier() -> None:
    draws = np.random.default_rng(1)
    x = draws.normal(size=(5000, 4))
    y = (x @ [1.0, -1.0, 0.5, 0.0] + draws.logistic(size=5000) * 0.3 > 0).astype(int)
    made = FairPrivateClassifier(epsilon=3.0).fit(x, y)
    assert made.score(x, y) > LogisticRegression().fit(x, y).score(x, y) - 0.05


@pytest.mark.slow
def test_scikit_learns_own_checks_pass() -> None:
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = check_estimator(FairPrivateClassifier(epsilon=1e5, random_state=0), on_fail=None, on_skip=None)
    failed = {check["check_name"]: str(check["exception"]) for check in checks if check["status"] == "failed"}
    assert not failed
    assert sum(check["status"] == "passed" for check in checks) > 45


@pytest.mark.parametrize(("settings", "words"), [({"favourable": "maybe"}, "favourable is"),
                                                 ({"epsilon": -1.0}, "epsilon"),
                                                 ({"monotonic_cst": [1, 0]}, "give 1, 0 or -1 by column"),
                                                 ({"monotonic_cst": {"age": "up"}}, "give 1, 0 or -1 by column")])
def test_what_cannot_be_is_refused(rows: pd.DataFrame, settings: dict[str, object], words: str) -> None:
    x, y, sex = rows.drop(columns=["hired", "sex", "postcode"]), rows["hired"], rows["sex"]
    with pytest.raises(ValueError, match=words):
        FairPrivateClassifier(**settings).fit(x, y, sensitive_features=sex)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sensitive_features has 3 rows"):
        FairPrivateClassifier().fit(x, y, sensitive_features=["a", "b", "a"])
    with pytest.raises(ValueError, match="y has no class in row 3"):
        FairPrivateClassifier().fit(x, y.astype(object).mask(y.index == 2, None), sensitive_features=sex)
    for name in ("label (y)", "sensitive feature", "site of the row"):
        with pytest.raises(ValueError, match="give it another name"):
            FairPrivateClassifier().fit(x.rename(columns={"age": name}), y, sensitive_features=sex, sites=sex)


def test_a_gap_renames_no_other_group(rows: pd.DataFrame) -> None:
    """Numbers beside one are doubles, and 1.0 is 1 as it is without."""
    x, y = rows[["age", "hours"]], rows["hired"]
    groups = (rows["sex"] == "m").astype(int) + 1
    for given, names in ((groups, ("1", "2")), (groups.mask(groups.index == 0), ("1", "2", "missing"))):
        made = FairPrivateClassifier(epsilon=5.0, random_state=0, gap_among=[1, 2.0])
        made.fit(x, y, sensitive_features=given)
        assert made.fitted_.result.data.train.names == names


DECLARED: dict[str, Callable[[list[int]], Any]] = {
    "date": lambda days: pd.DataFrame({"x": pd.Timestamp("1950-01-01") + pd.to_timedelta(days, unit="D")}),
    "duration": lambda days: pd.DataFrame({"x": pd.to_timedelta(days, unit="D")}),
    "date of Arrow": lambda days: pa.table({"x": pa.array(days, pa.int32()).cast(pa.date32())}),
    "date of a batch": lambda days: pa.record_batch({"x": pa.array(days, pa.int32()).cast(pa.date32())}),
    "time of Arrow": lambda days: pa.table({"x": pa.array(days, pa.int32()).cast(pa.time32("s"))}),
    "date of polars": lambda days: pl.DataFrame({"x": days}).select(pl.col("x").cast(pl.Int32).cast(pl.Date)),
    "decimal of Arrow": lambda days: pa.table({"x": pa.array([Decimal(day) / 4 for day in days], pa.decimal128(9, 2))}),
    "decimal of polars": lambda days: pl.DataFrame({"x": [Decimal(day) / 4 for day in days]})}


@pytest.mark.parametrize("kind", DECLARED)
def test_what_a_type_declares_to_be_a_quantity_is_one_and_no_category_a_day(kind: str) -> None:
    draws = np.random.default_rng(0)
    days = draws.integers(0, 9000, 1500)
    x, y = DECLARED[kind](days.tolist()), days + draws.normal(0, 500, 1500) > 4500
    made = FairPrivateClassifier(epsilon=20.0, random_state=0).fit(x, y)
    assert made.score(x, y) > 0.9
    assert all(feature.category is None for feature in made.fitted_.result.data.train.encoding.features)
