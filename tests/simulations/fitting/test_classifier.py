"""The classifier among scikit-learn's tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
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
from simulations.results.classifier import TrainedClassifier
from tests.for_each import for_each
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


@for_each("names", [["years ", "the  town"], ["years\n(of work)", "town"], [0, 1],
                    pd.MultiIndex.from_tuples([("a", "years"), ("b", "town")])])
def test_a_table_that_was_fitted_is_predicted_however_its_columns_are_named(names: Any) -> None:
    years, sex = np.arange(600) % 30, ["f", "f", "m"] * 200
    x = pd.DataFrame({"years": years, "town": np.where(years % 2 == 0, "Ulm", "Kiel")}).set_axis(names, axis=1)
    made = FairPrivateClassifier(epsilon=20.0, monotonic_cst={names[0]: 1}, random_state=0).fit(
        x, years > 14, sensitive_features=sex)
    assert made.score(x, years > 14) > 0.9
    decided = TrainedClassifier.of(made.fitted_.result).predict(x)
    assert decided.tolist() == made.predict(x).tolist()
    twice = pd.concat([x, x.iloc[:, :1]], axis=1)
    with pytest.raises(ValueError, match=r"X names column .* more than once: give each column a name of its own"):
        FairPrivateClassifier().fit(twice, years > 14, sensitive_features=sex)


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
                                                 ({"epsilon": "much"}, "epsilon"),
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
    for limit in ({"gap": 0.05}, {"gap_among": ["f", "m"]}):
        with pytest.raises(ValueError, match=f"{next(iter(limit))} is given, but no groups: give sensitive_features"):
            FairPrivateClassifier(**limit).fit(x, y)  # type: ignore[arg-type]
    for name in ("label (y)", "sensitive feature", "site of the row"):
        with pytest.raises(ValueError, match="give it another name"):
            FairPrivateClassifier().fit(x.rename(columns={"age": name}), y, sensitive_features=sex, sites=sex)


@pytest.mark.parametrize("given", ["sex", {"sex": ["f", "m"]}, 3])
def test_groups_are_values_of_rows_and_no_name(rows: pd.DataFrame, given: Any) -> None:
    x, y = rows[["age", "hours"]], rows["hired"]
    with pytest.raises(ValueError, match=r"sensitive_features is .*: give a value for each row"):
        FairPrivateClassifier().fit(x, y, sensitive_features=given)
    with pytest.raises(ValueError, match=r"sites is .*: give a value for each row"):
        FairPrivateClassifier().fit(x, y, sites=given)
    with pytest.raises(ValueError, match="gap_among is 'fm': give a list"):
        FairPrivateClassifier(gap_among="fm").fit(x, y, sensitive_features=rows["sex"])


def test_values_that_pandas_numbers_in_another_order_are_refused(rows: pd.DataFrame) -> None:
    """Each was that of another row, without a word."""
    x, y, sex = rows[["age", "hours"]].head(500), rows["hired"].head(500), rows["sex"].head(500)
    other = sex.sample(frac=1, random_state=0).index
    for given in ({"y": y[other], "sensitive_features": sex}, {"y": y, "sensitive_features": sex[other]},
                  {"y": y, "sensitive_features": sex, "sites": sex[other].to_frame()}):
        with pytest.raises(ValueError, match="has the index of X in another order"):
            FairPrivateClassifier().fit(x, **given)
    made = FairPrivateClassifier(epsilon=20.0, random_state=0)
    made.fit(x.loc[other], y[other], sensitive_features=sex[other].to_numpy())
    made.fit(x, y.reset_index(drop=True).set_axis(range(7, 507)), sensitive_features=sex)


@pytest.mark.parametrize(("made", "classes", "names"), [
    (lambda is_one: pd.Series(is_one, dtype="boolean"), [False, True], ["False", "True"]),
    (lambda is_one: pd.Series(is_one, dtype="Int64") + 2**60, [2**60, 2**60 + 1], ["000000", "000001"]),
    (lambda is_one: pd.Series(is_one, dtype=object), [False, True], ["False", "True"]),
    (lambda is_one: np.where(is_one, 10, 9).astype(object), [9, 10], ["9", "10"]),
    (lambda is_one: np.where(is_one, "yes", "no"), ["no", "yes"], ["no", "yes"]),
    (lambda is_one: np.where(is_one, "9", "10"), ["10", "9"], ["000000", "000001"]),  # a fit sorts them as numbers
    (lambda is_one: np.where(is_one, "a", "NA"), ["NA", "a"], ["000000", "000001"])])  # a missing value to a fit
def test_classes_keep_their_type_and_a_card_has_their_names(rows: pd.DataFrame, made: Any, classes: list[Any],
                                                            names: list[str]) -> None:
    """Nullable ones became fractions, so that two large codes were one; a card called them 000000 and 000001."""
    x, is_one = rows[["age", "hours"]].head(800), (rows["age"] > 50).head(800).to_numpy()
    fitted = FairPrivateClassifier(epsilon=50.0, random_state=0).fit(x, made(is_one))
    assert fitted.classes_.tolist() == classes
    assert (fitted.predict(x) == fitted.classes_[1])[is_one].mean() > 0.9
    assert "selection rates differ" not in fitted.card_  # there are no groups
    assert f"Deciding between {names[0]} and {names[1]} ({names[1]} is the favourable class)" in fitted.card_


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


OBJECTS: dict[str, Callable[[int], Any]] = {
    "whole numbers": int, "numpy's": np.int64, "doubles": lambda day: day / 8, "texts": str,
    "of two kinds": lambda day: day if day % 2 else float(day),
    "exact decimals": lambda day: Decimal(day) / 4,
    "dates": lambda day: date(1990, 1, 1) + timedelta(days=day),
    "moments": lambda day: pd.Timestamp(1990, 1, 1) + pd.Timedelta(days=day),
    "durations": lambda day: timedelta(days=day),
    "times": lambda day: time(day // 400, day % 60)}


def test_objects_are_read_as_what_they_are_and_no_category_each() -> None:
    draws = np.random.default_rng(0)
    days = draws.integers(0, 9000, 1500)
    made_of = {**OBJECTS, "truth values": lambda day: day > 4500, "names": lambda day: "new" if day > 4500 else "old"}
    values = {kind: [make(day) if day % 40 else None for day in days.tolist()] for kind, make in made_of.items()}
    x, y = pd.DataFrame(values, dtype=object), days + draws.normal(0, 500, 1500) > 4500
    made = FairPrivateClassifier(epsilon=20.0, random_state=0).fit(x, y)
    features = made.fitted_.result.data.train.encoding.features
    assert {feature.column for feature in features if feature.category is None} == {*OBJECTS}
    assert {feature.category for feature in features} >= {"True", "False", "new", "old"}
    assert made.score(x, y) > 0.9
    assert made.ledger_.epsilon() <= 20.0  # of which the counts that tell what cells are have a part


TABLES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "lazy of polars": lambda frame: pl.from_pandas(frame).lazy(),
    "table of Arrow": pa.Table.from_pandas, "batch of Arrow": pa.RecordBatch.from_pandas,
    "stream of Arrow": lambda frame: pa.Table.from_pandas(frame).to_reader(),
    "DuckDB": lambda frame: duckdb.connect().from_arrow(pa.Table.from_pandas(frame)),
    "dict of lists": lambda frame: frame.to_dict("list"),
    "rows": lambda frame: frame.to_dict("records"),
    "dict of arrays": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "structured array": lambda frame: frame.astype({"school": object}).to_records(index=False)}
NO_TABLES: dict[str, Any] = {
    "column": pd.Series([1, 2], name="age"), "row": pd.Series({"age": 3, "school": "x"}), "text": "people.csv",
    "nothing": None, "values": {"age": 3, "school": "x"}, "generator": iter([1]), "column of polars": pl.Series([1, 2]),
    "number": 3.0, "array of one number": np.array(3.0)}


@pytest.fixture(scope="module")
def trained(rows: pd.DataFrame) -> tuple[FairPrivateClassifier, pd.DataFrame]:
    """Return a classifier, and rows for it."""
    x = rows[["age", "school"]][:1500]
    return FairPrivateClassifier(epsilon=3.0, random_state=0).fit(x, rows["hired"][:1500]), x


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_the_same_in_whichever_form(trained: tuple[FairPrivateClassifier, pd.DataFrame],
                                               rows: pd.DataFrame, kind: str) -> None:
    made, x = trained
    assert (made.predict_proba(TABLES[kind](x)) == made.predict_proba(x)).all()
    again = clone(made).fit(TABLES[kind](x), rows["hired"][:1500])
    assert again.feature_names_in_.tolist() == ["age", "school"]
    assert again.score(x, rows["hired"][:1500]) > 0.6


@pytest.mark.parametrize("kind", NO_TABLES)
def test_what_is_no_table_is_told_what_is_one(trained: tuple[FairPrivateClassifier, pd.DataFrame], kind: str) -> None:
    made, _ = trained
    for call in (made.predict, made.predict_proba, TrainedClassifier.of(made.fitted_.result).predict,
                 lambda given: clone(made).fit(given, [0, 1])):
        with pytest.raises(ValueError, match=r"which is no table: give a DataFrame of pandas or polars, .* list with"):
            call(NO_TABLES[kind])


def test_arrays_that_are_no_prepared_rows_are_refused(trained: tuple[FairPrivateClassifier, pd.DataFrame]) -> None:
    prepared = TrainedClassifier.of(trained[0].fitted_.result)
    assert len(prepared.predict(prepared.prepared(trained[1]))) == len(trained[1])
    for given, words in ((np.zeros((3, 999)), "of shape"), (np.zeros(3), "of shape"),
                         (np.array([["1", "x"]]), "which is no table"), (trained[1].to_numpy(), "which is no table")):
        with pytest.raises(ValueError, match=words):
            prepared.predict(given)


def test_as_many_classes_as_rows_are_needed(rows: pd.DataFrame) -> None:
    for some in (rows[:0], rows[:7]):
        with pytest.raises(ValueError, match=f"y has 9 classes, but X has {len(some)} rows"):
            FairPrivateClassifier().fit(some[["age"]], rows["hired"][:9])


@for_each("typed", ["yes ", "Yes", "yes\u00a0"])
def test_classes_that_are_spelled_alike_are_refused_before_anything_is_charged(
        tmp_path: Path, rows: pd.DataFrame, typed: str) -> None:
    """A class that is mistyped once would be the favourable one, of which all figures are."""
    y = rows["hired"].astype(object)
    y.iloc[7] = typed
    made = FairPrivateClassifier(count_in=tmp_path / "fits.jsonl")
    with pytest.raises(ValueError, match="which differ by spaces or capital letters alone"):
        made.fit(rows[["age"]], y, sensitive_features=rows["sex"])
    assert not (tmp_path / "fits.jsonl").exists()
