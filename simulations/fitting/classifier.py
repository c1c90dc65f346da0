"""A fit as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.api.extensions import ExtensionDtype
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fedfair.accounting import Ledger
from fedfair.datasets.columns.cell import folded, repeated, spelled
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import declared_quantity, reading_as_asked, tidied_column
from fedfair.datasets.files.data_frames import as_arrow, table_or_array
from fedfair.datasets.names import value_name
from fedfair.moments.heads import Constraint
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.save import told
from simulations.results.classifier import TrainedClassifier

_LABEL, _GROUP, _SITE = "label (y)", "sensitive feature", "site of the row"
"""Columns of the table that a fit is given beside those of X."""


class FairPrivateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear scorecard under differential privacy, the most accurate one within a gap between groups.

    One epsilon pays for everything: ranges and categories of columns, the training, the choice, and the figures of
    `card_`. The unit of privacy is one row. Numbers, dates, durations and categories are told apart by the types of
    X's columns, which are public; so are the names of columns, classes and groups, and the number of rows. A column of
    the type object declares nothing: noisy counts of its cells, which epsilon pays for, tell what it holds.

    Args:
        epsilon: Epsilon that every row is kept within.
        delta: Its delta; None for 1 over ten times the number of rows, at most 1e-6.
        constraint: Of what the gap between groups is: "demographic_parity", "equal_opportunity" or "both".
        gap: Largest gap that is allowed on the validation part; None for the most accurate classifier.
        favourable: Class of a good decision; None for the last.
        attribute_in_model: Whether the sensitive feature is a feature of the model too. Then rows that are predicted
            need it as a column of X, named "sensitive feature".
        split: Shares of the training, validation and test part; None to train on all rows, at most 100,000
            of two classes, with figures of each row by a model without it (`fedfair.moments.leave_one_out`), or else
            (.7, .1, .2).
        random_state: None for noise of the operating system; a seed for noise that can be repeated, which is no
            protection.
        count_in: File that counts this fit with others of the same rows (`simulations.fitting.budget.Spending`): a
            cross-validation of five fits costs five times epsilon. None for none.
        gap_among: Groups among which gaps are, as `sensitive_features` names them, whatever can be told of others; name
            them without looking at the rows. None for all of which rates can be told.
        monotonic_cst: 1 for each column, by its name, with which the favourable class must get more probable, -1 where
            less; None for none.

    Attributes:
        classes_: Classes, sorted.
        front_: A row for each figure of every classifier that follows from the same releases.
        ledger_: What was released, and at what cost.
        card_: The model card, in Markdown.
        fitted_: The whole fit (`simulations.fitting.fit.Fitted`), without the rows.
        n_features_in_: Number of columns of X.
        feature_names_in_: Their names, if X is a DataFrame.

    Examples:
        >>> X = pd.DataFrame({"years": range(300), "town": ["north", "south"] * 150})
        >>> y, sex = X["years"] >= 150, ["f", "f", "m"] * 100
        >>> classifier = FairPrivateClassifier(epsilon=6.0, random_state=0).fit(X, y, sensitive_features=sex)
        >>> classifier.predict(pd.DataFrame({"years": [5, 295], "town": ["north", "north"]}))
        array([False,  True])
        >>> classifier.predict_proba(X).shape, classifier.ledger_.guarantee, classifier.ledger_.epsilon() <= 6.0
        ((300, 2), 'simulated', True)
    """

    def __init__(self, epsilon: float = 1.0, delta: float | None = None,
                 constraint: Constraint = "demographic_parity", gap: float | None = None, favourable: Any = None,
                 attribute_in_model: bool = False, split: tuple[float, float, float] | None = None,
                 random_state: int | np.random.RandomState | None = None, count_in: str | Path | None = None,
                 monotonic_cst: Mapping[str, Literal[-1, 0, 1]] | None = None,
                 gap_among: Sequence[Any] | None = None) -> None:
        self.epsilon, self.delta, self.constraint, self.gap = epsilon, delta, constraint, gap
        self.favourable, self.attribute_in_model = favourable, attribute_in_model
        self.split, self.random_state, self.count_in = split, random_state, count_in
        self.monotonic_cst, self.gap_among = monotonic_cst, gap_among

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: ArrayLike | None = None,
            sites: ArrayLike | None = None) -> FairPrivateClassifier:
        """Fit to a table.

        Args:
            X: Rows: a DataFrame of pandas or polars, another table that `fedfair.datasets.files.data_frames.as_pandas`
                takes, or an array of numbers `[n, features]`.
            y: Class of each row, `[n]`.
            sensitive_features: Group of each row, `[n]`, or several columns for their intersections; None for no
                groups, and then there are no gaps.
            sites: Site of each row, `[n]`, such as a hospital, for figures of `card_` by site and by group within each;
                None for none. They are no feature, and their names are public.

        Raises:
            ValueError: If the rows cannot be used.
        """
        for what, given in {"y": y, "sensitive_features": sensitive_features, "sites": sites}.items():
            _refuse_another_order(what, given, X)
        X = as_arrow(X)
        frame, names = self._frame(X, reset=True)
        own = [_LABEL, *([] if self.attribute_in_model else [_GROUP]), *([] if sites is None else [_SITE])]
        taken = [name for name in own if name in names]
        if taken:
            raise ValueError(f"X has a column {taken[0]!r}, which is what fit calls one of its own: give it another "
                             "name")
        labels = column_or_1d(_own_type(y), warn=True)
        if len(labels) != len(frame):
            raise ValueError(f"y has {len(labels):,} classes, but X has {len(frame):,} rows: give one for each row")
        if pd.isna(labels).any():
            raise ValueError(f"y has no class in row {int(pd.isna(labels).argmax()) + 1}: leave such rows out, since "
                             "nothing can be learned from them")
        check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class alone, {self.classes_[0]!r}: a classifier needs two classes at least")
        _refuse_alike(self.classes_)
        decimals, times = _declared_by_arrow(X)
        quantities = {name: kind for name in names if (kind := declared_quantity(frame[name]))} | dict.fromkeys(
            times, "time")
        numbers = [name for name in names if name in decimals or (
            is_numeric_dtype(frame[name]) and not is_bool_dtype(frame[name]))]
        of_groups = next((name for name in ("gap", "gap_among") if getattr(self, name) is not None), None)
        if sensitive_features is None and of_groups:
            raise ValueError(f"{of_groups} is given, but no groups: give sensitive_features, the group of each row, or "
                             f"leave {of_groups} out")
        if isinstance(self.gap_among, str):
            raise ValueError(f"gap_among is {self.gap_among!r}: give a list of groups, for example ['f', 'm']")
        codes, classes = np.searchsorted(self.classes_, labels), _class_names(self.classes_)
        table = frame.assign(**{_LABEL: [classes[code] for code in codes]})
        group = _LABEL
        if sensitive_features is not None:
            table[_GROUP], group = _names("sensitive_features", sensitive_features, len(table)), _GROUP
        if sites is not None:
            table[_SITE] = _names("sites", sites, len(table))
        seed = None if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        settings: dict[str, Any] = {
            "numbers": numbers, "categorical": _categories(frame, {*numbers, *quantities}),
            **({"quantities": quantities} if quantities else {}),
            "attribute_in_model": self.attribute_in_model,
            **({"randomness": "system"} if seed is None else {"randomness": "seeded", "seed": seed}),
            **({} if self.split is None else {"split": self.split}),
            **({} if self.gap_among is None else {"gap_among": [*map(value_name, self.gap_among)]}),
            **({} if self.favourable is None else {"favourable": classes[_place(self.classes_, self.favourable)]})}
        self.fitted_ = fit(Wanted(table, _LABEL, group, self.epsilon, self.delta, self.gap, self.constraint, settings,
                                  site=None if sites is None else _SITE, count_in=self.count_in,
                                  monotone=_directions(self.monotonic_cst)))
        self._model = TrainedClassifier.of(self.fitted_.result)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row, `[n]`.

        Args:
            X: Rows with the columns that the classifier was fitted to.
        """
        check_is_fitted(self)
        return cast(NDArray[Any], self.classes_[self.predict_proba(X).argmax(1)])

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probability of each class for each row, `[n, classes]`.

        Args:
            X: Rows with the columns that the classifier was fitted to.
        """
        check_is_fitted(self)
        frame, _ = self._frame(X, reset=False)
        return self._model.predict_proba(frame)

    @property
    def front_(self) -> pd.DataFrame:
        """Figures of every classifier that follows from the same releases."""
        check_is_fitted(self)
        front = self.fitted_.result.front
        assert front is not None
        settings = pd.DataFrame([{"point": number, **point._asdict()} for number, point in
                                 enumerate(front.front.points)])
        return settings.merge(pd.DataFrame(front.rows), on="point")

    @property
    def ledger_(self) -> Ledger:
        """What was released, and at what cost."""
        check_is_fitted(self)
        return self.fitted_.result.ledger

    @property
    def card_(self) -> str:
        """The model card, in Markdown."""
        from simulations.fitting.card import card_in_markdown

        check_is_fitted(self)
        return card_in_markdown(told(self.fitted_))

    def _frame(self, X: Any, reset: bool) -> tuple[pd.DataFrame, list[str]]:
        """Return rows as a DataFrame with names that are texts, as a fit spells them; remember the names if `reset`.

        Raises `ValueError` for a name that two columns have.
        """
        X = table_or_array(X)
        if not isinstance(X, pd.DataFrame):
            values = validate_data(self, X, reset=reset, ensure_all_finite="allow-nan", dtype="numeric")
            names = [f"x{number}" for number in range(values.shape[1])]
            return pd.DataFrame(values.astype("float64"), columns=names), names
        names = [spelled(str(name)) for name in X]
        twice = repeated(names)
        if twice is not None:
            raise ValueError(f"X names column {twice!r} more than once: give each column a name of its own")
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X.set_axis(names, axis=1).reset_index(drop=True), names

    def __sklearn_tags__(self) -> Any:
        """Say that missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.classifier_tags.poor_score = True  # on tables as small as those of scikit-learn's checks
        tags.non_deterministic = self.random_state is None
        return tags


def _own_type(y: Any) -> Any:
    """Return classes, `[n]`, that pandas holds as nullable numbers or truth values, or as objects, by their own type.

    scikit-learn takes the former for fractions, and refuses the latter.
    """
    if isinstance(y, np.ndarray) and y.dtype == object and y.ndim == 1:
        y = pd.Series(y)
    if not isinstance(y, pd.Series) or y.isna().any():
        return y
    if isinstance(y.dtype, ExtensionDtype) and (is_bool_dtype(y) or is_integer_dtype(y)):
        return np.asarray(y.tolist())
    return y.infer_objects()


def _class_names(classes: NDArray[Any]) -> list[str]:
    """Return the names that classes have in the table of a fit: their own, if a fit reads them in the same order.

    Else, as for text of numbers, which a fit sorts as numbers, they are numbered.
    """
    names = pd.Series([*map(value_name, classes.tolist())], name=_LABEL, dtype="str")
    places, found = tidied_column(names, reading_as_asked(Asked())).factorize(sort=True)
    if [*map(value_name, found)] == names.tolist() and [*places] == [*range(len(names))]:
        return names.tolist()
    return [f"{code:06d}" for code in range(len(names))]


def _refuse_another_order(what: str, given: Any, X: Any) -> None:
    """Raise `ValueError` for values of rows that pandas numbers as those of X, in another order.

    They are taken by their places, so that each would be that of another row.
    """
    if not isinstance(X, pd.DataFrame) or not isinstance(given, pd.Series | pd.DataFrame):
        return
    own, other = X.index, given.index
    if len(own) == len(other) and not own.equals(other) and own.is_unique and bool(other.isin(own).all()):
        raise ValueError(f"{what} has the index of X in another order: give it in the order of the rows of X, as "
                         f"{what}.loc[X.index]")


def _refuse_alike(classes: NDArray[Any]) -> None:
    """Raise `ValueError` for classes that differ by spaces or capital letters alone, as one that is mistyped once.

    The last class is the favourable one by default: figures would be of how often a mistyped one is decided for.
    """
    names: dict[str, Any] = {}
    for name in (each for each in classes if isinstance(each, str)):
        first = names.setdefault(folded(spelled(name)), name)
        if first is not name:
            raise ValueError(f"y has the classes {str(first)!r} and {str(name)!r}, which differ by spaces or capital "
                             "letters alone: write them in one way, or give numbers if they are two")


def _declared_by_arrow(X: Any) -> tuple[list[str], list[str]]:
    """Return the columns of exact decimals, and of times, of a table of Arrow, untyped in pandas."""
    import pyarrow as pa

    fields = X.schema if isinstance(X, pa.Table) else ()
    return ([spelled(field.name) for field in fields if pa.types.is_decimal(field.type)],
            [spelled(field.name) for field in fields if pa.types.is_time(field.type)])


def _categories(frame: pd.DataFrame, others: Collection[str]) -> list[str]:
    """Return the columns that hold categories by their type: all but those of objects, which may be of any kind."""
    return [str(name) for name, column in frame.items() if name not in others and column.dtype != object]


def _names(what: str, given: ArrayLike, rows: int) -> list[str]:
    """Return the name of each row's group or site, `[n]`; of several columns their intersection."""
    if isinstance(given, str | Mapping) or np.ndim(given) == 0:
        raise ValueError(f"{what} is {given if isinstance(given, str) else type(given).__name__}: give a value for "
                         "each row, for example a column of the table, X['sex']")
    table = pd.DataFrame(given if isinstance(given, pd.DataFrame | pd.Series) else np.asarray(given))
    if len(table) != rows:
        raise ValueError(f"{what} has {len(table)} rows, but X has {rows}: give one for each row")
    named = table.apply(lambda column: column.map(_whole, na_action="ignore"))  # 1.0 beside a gap is 1, as without
    texts: list[str] = named.astype("string").fillna("missing").agg(" & ".join, axis=1).tolist()
    return texts


def _whole(value: Any) -> Any:
    """Return the name of a number, and any other value as it is."""
    return value_name(value) if isinstance(value, float) else value


def _directions(asked: Any) -> tuple[str, ...]:
    """Return the directions of columns as a fit takes them; raise `ValueError` for what is none."""
    if asked is None:
        return ()
    if not isinstance(asked, Mapping) or any(way not in (-1, 0, 1) for way in asked.values()):
        raise ValueError(f"monotonic_cst is {asked!r}: give 1, 0 or -1 by column, for example {{'years': 1}}")
    return tuple(f"{spelled(str(name))}={'up' if way > 0 else 'down'}" for name, way in asked.items() if way)


def _place(classes: NDArray[Any], favourable: Any) -> int:
    """Return the number of a class; raise `ValueError` if it is none."""
    found = np.flatnonzero(classes == favourable)
    if not len(found):
        raise ValueError(f"favourable is {favourable!r}, but the classes are {', '.join(map(str, classes))}")
    return int(found[0])
