"""What is public of a table's columns before a fit counts any: what the settings say, and what its file declares."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce

import numpy as np
import pandas as pd

from fedfair.datasets.columns.kinds import holds_dates
from fedfair.datasets.features.encoding import Encoding
from fedfair.datasets.features.features import refuse_ends, refuse_ranges
from fedfair.datasets.files.chunks import Chunks
from fedfair.datasets.grouped import crossed
from fedfair.datasets.names import toml_key
from fedfair.datasets.table import from_chunks
from fedfair.fairness.intervals import places_of
from fedfair.moments.monotone import directions_of, refuse_unordered
from fedfair.moments.sums import CLASSES
from fedfair.plugins.registry import unknown
from simulations.settings.experiment import Experiment

ROW_NUMBERS = "Unnamed: 0"
"""Name of a first column that has none: pandas and R write the numbers of rows there."""

_ROWS = 10_000
"""Rows that are enough to try settings on."""

_log = logging.getLogger(__name__)


def with_declared(made: Experiment, table: Chunks, directed: Sequence[str]) -> Experiment:
    """Return the settings of a fit with what the file of its table declares of columns.

    Columns of which it lists the values are categories, and numbers of rows are no feature.

    Args:
        made: The settings.
        table: The table, of which only names and declarations are looked at.
        directed: Columns that the score rises or falls with.

    Raises:
        ValueError: If a column that is named is not there, cannot have its role or range, or holds dates or durations
            by its declaration and something else by the settings, or a group that is named is none.
    """
    said = (*(made.categorical or ()), *(made.answers or ()), *made.numbers, *dict(made.quantities or ()),
            *dict(made.edges or ()), *(known.column for known in made.ranges or ()),
            *(known.column for known in made.categories or ()))
    for column in filter(None, (made.label, *made.attribute_columns, made.site, *directed, *said)):
        if column not in table.names:
            raise unknown("column", column, table.names)
    _refuse_roles(made, directed)
    refuse_ranges(made.ranges or ())
    for column, edges in made.edges or ():
        refuse_ends(column, edges)
    _refuse_dates(made, [name for name, quantity in table.declared if quantity == "date"])
    _refuse_durations(made, [name for name, quantity in table.declared if quantity == "duration"])
    if table.listed:
        made = made.model_copy(update={"categorical": (*(made.categorical or ()), *table.listed)})
    if ROW_NUMBERS in unknown_columns(made, table.names):
        _log.warning("left out: the first column, which has no name, as numbers of rows have that a program writes; "
                     "give it a name to have it as a feature")
        made = made.model_copy(update={"without": (*(made.without or ()), ROW_NUMBERS)})
    if made.gap_among:
        places_of(made.gap_among, _groups(made, table))
    return made


def refuse_added(made: Experiment, names: Sequence[str], classes: Sequence[str]) -> None:
    """Raise `ValueError` for a feature that is called as what a model adds to new rows, which it could never decide.

    Args:
        made: The settings.
        names: Names of the table's columns.
        classes: Names of the classes.
    """
    groups = () if made.attribute_in_model else made.attributes
    others = {made.label, made.site, made.participant, made.record_weight, *groups, *(made.without or ())}
    for name in ("predicted", *(f"P({label})" for label in classes)):
        if name in names and name not in others:
            raise ValueError(f"column {name!r} is called as what a model adds to new rows: give it another name, or "
                             "leave it out by without")


def without_records(made: Experiment, names: Sequence[str], roles: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Return a table like another one of which nothing but public values is left, to try a fit's settings on.

    Args:
        made: The settings.
        names: Names of the columns, which are public.
        roles: A row for each label, group and site that occurs together.
        rows: Number of rows of the table.
    """
    numbers = np.arange(max(len(roles), min(rows, _ROWS)))
    kept = {str(name): column.take(numbers % len(roles)).reset_index(drop=True) for name, column in roles.items()}
    own = {made.participant: pd.Series(numbers), **{name: pd.Series(1.0, numbers) for name in
                                                    (made.record_weight, *dict(made.bands or ()))}}
    empty = pd.Series(np.nan, numbers)  # no texts, which would be looked at one by one
    return pd.DataFrame({name: kept.get(name, own.get(name, empty)) for name in names})


def unknown_columns(made: Experiment, columns: Sequence[str]) -> list[str]:
    """Return the columns of which nothing says whether they hold numbers.

    Args:
        made: The settings.
        columns: Names of the columns, which are public.
    """
    roles = (made.label, *made.attributes, made.participant, made.record_weight, made.site)
    known = {*roles, *(made.without or ()), *made.known_columns, *made.numbers, *(made.categorical or ()),
             *dict(made.quantities or ())}
    return [name for name in columns if name not in known]


def may_have_commas(made: Experiment, separator: str | None) -> bool:
    """Return whether a comma may stand before decimals, as the format of the file and the settings say.

    Args:
        made: The settings.
        separator: What stands between the cells of a row; None for a format that has none.
    """
    return separator not in (None, ",") and not made.decimal


def _groups(made: Experiment, table: Chunks) -> tuple[str, ...]:
    """Return the names of all groups, which are public, before anything is released."""
    without = [name for name in table.names if name not in (made.label, *made.attributes)]
    return reduce(crossed, [from_chunks(table, str(made.label), str(column), without=without, numbers=(),
                                        asked=made.asked) for column in made.attributes]).names


def _refuse_roles(made: Experiment, directed: Sequence[str]) -> None:
    """Raise `ValueError` for a column with a direction that is not a number among the features.

    Args:
        made: The settings.
        directed: The columns.
    """
    listed = {known.column for known in made.categories or ()}
    roles: dict[str | None, str] = {
        made.label: "the label", made.site: "the site", made.participant: "the participant",
        **dict.fromkeys(made.attributes, "the group"), **dict.fromkeys(made.without or (), "left out"),
        **dict.fromkeys({*(made.categorical or ()), *listed}, "a category")}
    for column in directed:
        if column in roles and not (made.attribute_in_model and roles[column] == "the group"):
            raise ValueError(f"monotone is asked of {column!r}, which is {roles[column]}: name a column with numbers "
                             "that is a feature, or leave it out")


def _refuse_dates(made: Experiment, dates: Sequence[str]) -> None:
    """Raise `ValueError` for a column that its file declares to hold dates, unless the settings say what it is.

    Args:
        made: The settings.
        dates: Columns that the format of the file declares, which is public, so that no row decides it.
    """
    named = {*(made.without or ()), *(made.categorical or ()), *dict(made.quantities or ()), made.label, made.site,
             *made.attributes, made.participant, *(known.column for known in made.categories or ())}
    wrong = [holds_dates(name, None, may_be_days=True) for name in dates if name not in named]
    if wrong:
        raise ValueError("; ".join(wrong))


def _refuse_durations(made: Experiment, durations: Sequence[str]) -> None:
    """Raise `ValueError` for a column of durations by the file's declaration that settings take for plain numbers.

    Args:
        made: The settings.
        durations: Columns that the format of the file declares, which is public, so that no row decides it.
    """
    plain = {*made.numbers, *dict(made.edges or ()), *(known.column for known in made.ranges or ())}
    for name in durations:
        if name in plain - {*dict(made.quantities or ())}:
            raise ValueError(f"column {name!r} holds durations, which are no plain numbers: take their days with "
                             f'quantities = {{ {toml_key(name)} = "duration" }}, beside a range or ends of bins')


def refuse_classes(made: Experiment, classes: int, gap: float | None, monotone: Sequence[str]) -> None:
    """Raise `ValueError` for what cannot be asked with so many classes: a gap between rates of none, and directions.

    Args:
        made: Settings of the fit.
        classes: Number of classes.
        gap: Largest gap that is asked; None for any.
        monotone: Columns with a direction, as "income=up".
    """
    if classes == CLASSES:
        return
    refuse_unordered(directions_of(monotone), Encoding(), classes)
    if gap is not None and made.favourable is None:
        raise ValueError(f"gap is {gap}, but none of the {classes} classes is named as the favourable one, of "
                         "whose decisions rates could differ: name one by favourable, or leave the gap out")
