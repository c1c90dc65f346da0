"""Fifteen made tables, of which every row's chance of the favourable class is known.

Each has one trait of real tables that a private classifier may stumble over. Columns and score are written out as
mathematics, nothing in them is fitted, and all draws follow from a seed, so that the truth can be measured on as many
fresh rows as one likes. The chance is that of who knows all that decides: the group, what is missing, and what columns
hide. Decisions by it are a limit that a classifier of the columns may not reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

LABEL, GROUP = "outcome", "group"
"""Columns with the class, "yes" (favourable) or "no", and with the group, "a" or "b", which is no feature."""

Array = NDArray[Any]
Columns = tuple[Mapping[str, Array], Array]
"""Columns by name, `[n]` each, and the score `[n]`, of which the logistic function is the chance of "yes"."""


class Sample(NamedTuple):
    """Rows of a made table.

    Attributes:
        frame: The rows, with `LABEL` and `GROUP`.
        chance: How probable "yes" is for each row, `[n]`.
    """

    frame: pd.DataFrame
    chance: Array


@dataclass(frozen=True)
class Made:
    """A made table.

    Attributes:
        name: What it is called.
        rows: Number of rows that are trained on.
        trait: What is special about it.
        columns: From a generator, and whether each row is of group "b" `[n]`, to the columns and the score.
    """

    name: str
    rows: int
    trait: str
    columns: Callable[[np.random.Generator, Array], Columns]

    def draw(self, seed: int, rows: int | None = None) -> Sample:
        """Draw rows.

        Args:
            seed: What the draws follow from.
            rows: Number of rows; None for as many as are trained on.

        Examples:
            >>> sample = MADE["years"].draw(0, 1_000)
            >>> sample.frame.shape, bool(((sample.chance > 0) & (sample.chance < 1)).all())
            ((1000, 6), True)
        """
        draws = np.random.default_rng([seed, *self.name.encode()])
        group = draws.random(self.rows if rows is None else rows) < 0.35
        columns, score = self.columns(draws, group)
        chance = expit(score)
        label = np.where(draws.random(len(chance)) < chance, "yes", "no")
        frame = pd.DataFrame({**columns, GROUP: np.where(group, "b", "a"), LABEL: label})
        return Sample(frame, chance)


MADE: dict[str, Made] = {}
"""The tables by name."""


def _table(name: str, rows: int, trait: str) -> Callable[[Callable[[np.random.Generator, Array], Columns]], None]:
    """Enter what makes a table's columns under a name."""
    def enter(columns: Callable[[np.random.Generator, Array], Columns]) -> None:
        """Enter it."""
        MADE[name] = Made(name, rows, trait, columns)

    return enter


def _numbered(prefix: str, values: Array) -> dict[str, Array]:
    """Return the columns of a matrix `[n, d]` by names."""
    return {f"{prefix}{place}": values[:, place] for place in range(values.shape[1])}


def _named(prefix: str, codes: Array) -> Array:
    """Return texts for the codes of a category, `[n]`."""
    return np.char.add(prefix, codes.astype(int).astype(str))


@_table("heavy tails", 10_000, "amounts over six orders of magnitude, Student's t and Cauchy")
def _heavy_tails(draws: np.random.Generator, group: Array) -> Columns:
    """Return amounts that decide by their logarithm, and symmetric numbers that decide by their rank."""
    n = len(group)
    income, debt = (np.exp(draws.normal(mean, 1.8, n)).round(2) for mean in (9.0, 6.0))
    t, cauchy = draws.standard_t(2, n).round(4), draws.standard_cauchy(n).round(4)
    pareto = (1_000 * (1 + draws.pareto(1.1, n))).round(0)
    amounts = 0.9 * (np.log(income) - 9) / 1.8 - 0.7 * (np.log(debt) - 6) / 1.8 - 0.5 * (np.log(pareto / 1_000) - 0.9)
    score = amounts + 0.8 * np.tanh(t) + 0.8 * np.arctan(cauchy) - 0.3 * group
    return {"income": income, "debt": debt, "t": t, "cauchy": cauchy, "pareto": pareto}, score - 0.4


@_table("switches", 10_000, "50 columns of 0 and 1, half of them with fewer than 5 % ones")
def _switches(draws: np.random.Generator, group: Array) -> Columns:
    """Return columns of 0 and 1 whose logarithmic odds ratios alternate; rare ones weigh more."""
    shares = np.geomspace(0.004, 0.5, 50)
    ones = (draws.random((len(group), 50)) < shares).astype(int)
    weights = np.where(np.arange(50) % 2, 1, -0.8) * np.linspace(1.6, 0.3, 50)
    return _numbered("s", ones), ones @ weights - shares @ weights - 0.5 + 0.3 * group


@_table("counts", 8_000, "small counts, most of them 0 or 1, whose effect levels off")
def _counts(draws: np.random.Generator, group: Array) -> Columns:
    """Return numbers of visits, offences and the like."""
    n = len(group)
    means = np.array([0.2, 0.5, 1, 2, 5, 12])
    poisson = draws.poisson(means * np.where(group, 1.3, 1.0)[:, None], (n, 6))
    geometric = draws.geometric(0.3, (n, 2)) - 1
    score = (np.minimum(poisson[:, 0], 2) - 0.8 * np.minimum(poisson[:, 1], 3) + 0.7 * np.sqrt(poisson[:, 3])
             - 0.12 * poisson[:, 5] + 0.9 * np.log1p(geometric[:, 0]) - 0.5 * (geometric[:, 1] == 0))
    return {**_numbered("n", poisson), **_numbered("g", geometric)}, score - 0.3


@_table("years", 6_000, "years and months, far from 0 and close to each other")
def _years(draws: np.random.Generator, group: Array) -> Columns:
    """Return years of birth and of contract, and a month; generations differ, not single years."""
    n = len(group)
    born = draws.integers(1938, 2004, n)
    since = np.maximum(born + 18, 2024 - draws.geometric(0.12, n))
    month, built = draws.integers(1, 13, n), draws.integers(1900, 2021, n)
    score = (1.2 * np.sin((born - 1938) / 66 * np.pi) + 0.06 * (2024 - since) - 0.9 * (since > 2015)
             + 0.5 * ((month == 6) | (month == 7)) + 0.8 * (built < 1945) - 0.4 * group)
    return {"born": born, "since": since, "month": month, "built": built}, score - 0.6


@_table("zero or an amount", 12_000, "four columns that are 0 in 80 to 97 of 100 rows, and else an amount")
def _zero_or_an_amount(draws: np.random.Generator, group: Array) -> Columns:
    """Return gains, losses and the like, and two plain numbers."""
    n = len(group)
    columns, score = {}, np.zeros(n)
    for place, (share, weight) in enumerate(((0.2, 0.5), (0.1, -0.8), (0.05, 1.2), (0.03, -1.5))):
        held = draws.random(n) < share
        amount = np.where(held, np.exp(draws.normal(7, 1.2, n)), 0).round(0)
        columns[f"amount{place}"] = amount
        score += weight * held * (0.5 + np.tanh(np.log1p(amount) / 7))
    age, hours = draws.normal(42, 13, n).clip(17, 90).round(0), draws.normal(38, 11, n).clip(1, 99).round(0)
    score += 0.05 * (age - 42) - 0.001 * (age - 42) ** 2 + 0.04 * (hours - 38) - 0.4 * group
    return {**columns, "age": age, "hours": hours}, score - 0.8


@_table("rare categories", 15_000, "four categories with 8 to 800 values, most of them rare")
def _rare_categories(draws: np.random.Generator, group: Array) -> Columns:
    """Return categories by Zipf's law, whose values weigh by their number modulo 5, and two numbers."""
    n = len(group)
    columns: dict[str, Array] = {}
    score = np.zeros(n)
    for place, most in enumerate((8, 40, 200, 800)):
        codes = np.minimum(draws.zipf(1.6, n), most)
        columns[f"kind{place}"] = _named("k", codes)
        score += np.array([0.7, -0.5, 0.0, 0.4, -0.8])[codes % 5]
    x = draws.normal(0.2 * group[:, None], 1, (n, 2)).round(3)
    return {**columns, **_numbered("x", x)}, score + 0.8 * x[:, 0] - 0.5 * x[:, 1] + 0.6


@_table("missing values", 8_000, "a third of the cells missing, some because of what they would be")
def _missing_values(draws: np.random.Generator, group: Array) -> Columns:
    """Return numbers of which four are missing at random and two by their value, and a category with gaps."""
    n = len(group)
    x = draws.normal(size=(n, 8)).round(3)
    town = draws.integers(0, 6, n)
    score = x @ np.array([0.7, -0.6, 0.5, 0.4, -0.4, 0.3, 0.6, -0.6]) + 0.4 * np.cos(town) - 0.3 * group
    gone = draws.random((n, 8)) < np.array([0, 0, 0.2, 0.3, 0.4, 0.5, 0, 0])
    gone[:, 6] = x[:, 6] + draws.normal(0, 0.5, n) > 0.5
    gone[:, 7] = draws.random(n) < expit(2 * x[:, 7])
    score = score + 0.4 * gone[:, 5]
    name = _named("t", town).astype(object)
    name[draws.random(n) < 0.25] = None
    return {**_numbered("x", np.where(gone, np.nan, x)), "town": name}, score - 0.3


@_table("interactions", 10_000, "half of what can be known is in products and in exclusive or")
def _interactions(draws: np.random.Generator, group: Array) -> Columns:
    """Return numbers and switches that decide alone and in pairs."""
    n = len(group)
    x, on = draws.normal(size=(n, 6)).round(3), draws.integers(0, 2, (n, 4))
    alone = 0.7 * x[:, 0] - 0.6 * x[:, 1] + 0.5 * on[:, 0]
    pairs = 0.8 * x[:, 2] * x[:, 3] + 1.4 * ((on[:, 1] ^ on[:, 2]) - 0.5) + 0.7 * x[:, 4] * (2 * on[:, 3] - 1)
    return {**_numbered("x", x), **_numbered("s", on)}, alone + pairs - 0.4 * group


@_table("700 rows", 700, "a small study: eight columns of numbers, counts and categories")
def _seven_hundred(draws: np.random.Generator, group: Array) -> Columns:
    """Return what a small clinical study holds."""
    return _study(draws, group)


@_table("2,500 rows", 2_500, "the same study with more rows")
def _more_rows(draws: np.random.Generator, group: Array) -> Columns:
    """Return what a small clinical study holds."""
    return _study(draws, group)


def _study(draws: np.random.Generator, group: Array) -> Columns:
    """Return age, pressure, cholesterol, body mass, cigarettes, diabetes, exercise and ward."""
    n = len(group)
    age = draws.integers(30, 86, n)
    pressure = (100 + 0.5 * age + draws.normal(0, 15, n)).round(0)
    lipids, mass = draws.normal(200, 40, n).round(0), draws.gamma(30, 0.9, n).round(1)
    smoked = np.where(draws.random(n) < 0.6, 0, draws.integers(1, 40, n))
    sugar, moves = (draws.random(n) < 0.1 + 0.002 * age).astype(int), draws.integers(0, 4, n)
    score = (0.07 * (age - 58) + 0.02 * (pressure - 129) + 0.008 * (lipids - 200) + 0.04 * (mass - 27)
             + 0.9 * (smoked > 10) + 0.9 * sugar - 0.4 * moves - 0.5 * group)
    return {"age": age, "pressure": pressure, "lipids": lipids, "mass": mass, "smoked": smoked, "sugar": sugar,
            "exercise": np.array(["none", "some", "weekly", "daily"])[moves],
            "ward": _named("w", draws.integers(1, 6, n))}, score - 0.1


@_table("many columns", 10_000, "120 columns, of which 12 say anything")
def _many_columns(draws: np.random.Generator, group: Array) -> Columns:
    """Return numbers, categories and switches, one in ten of each with an effect."""
    n = len(group)
    x, on, kinds = draws.normal(size=(n, 60)), (draws.random((n, 40)) < 0.2).astype(int), draws.integers(0, 4, (n, 20))
    score = (x[:, :6] @ np.array([0.8, -0.7, 0.6, -0.5, 0.4, -0.4]) + on[:, :4] @ np.array([1.0, -0.9, 0.8, -0.7])
             + 0.6 * (kinds[:, 0] == 1) - 0.6 * (kinds[:, 1] == 2) - 0.3 * group)
    texts = {f"k{place}": _named("k", kinds[:, place]) for place in range(20)}
    return {**_numbered("x", x.round(3)), **_numbered("s", on), **texts}, score


@_table("imbalanced", 20_000, "2 % of the rows have the favourable class")
def _imbalanced(draws: np.random.Generator, group: Array) -> Columns:
    """Return numbers and a category for a rare event."""
    n = len(group)
    x, kind = draws.normal(size=(n, 6)), draws.integers(0, 5, n)
    score = 0.9 * x[:, 0] - 0.8 * x[:, 1] + 0.6 * np.maximum(x[:, 2], 0) + 0.5 * (kind == 3) + 0.4 * group
    return {**_numbered("x", x.round(3)), "kind": _named("k", kind)}, score - 5.2


@_table("shifted groups", 10_000, "the groups differ in what they have and in what it is worth")
def _shifted_groups(draws: np.random.Generator, group: Array) -> Columns:
    """Return numbers whose means and effects depend on the group, and a proxy for it."""
    n = len(group)
    x = draws.normal(size=(n, 5)) + np.outer(group, [-0.8, 0.5, 0, 0, -0.4])
    district = np.where(draws.random(n) < 0.8, group, draws.random(n) < 0.5) * 3 + draws.integers(0, 3, n)
    both = 0.9 * x[:, 0] + 0.5 * x[:, 1] - 0.6 * x[:, 2]
    score = both + np.where(group, -0.9 * x[:, 3] - 0.5, 0.9 * x[:, 3] + 0.2) + 0.3 * x[:, 4]
    return {**_numbered("x", x.round(3)), "district": _named("d", district)}, score


@_table("steps and bends", 20_000, "steps, a valley and a wave, as trees find them and straight lines do not")
def _steps_and_bends(draws: np.random.Generator, group: Array) -> Columns:
    """Return numbers that decide by steps at .15 and .9, by their square, and by a wave."""
    x = draws.random((len(group), 7))
    score = (1.5 * (x[:, 0] > 0.9) - 1.2 * (x[:, 0] < 0.15) + 8 * (x[:, 1] - 0.5) ** 2 + 0.8 * np.sin(9 * x[:, 2])
             + 1.5 * (np.abs(x[:, 3] - 0.7) < 0.1) + 1.2 * x[:, 4] - 0.3 * group)
    return _numbered("x", x.round(4)), score - 1.3


@_table("alike columns", 30_000, "25 numbers that follow four hidden ones, so that many say the same")
def _alike_columns(draws: np.random.Generator, group: Array) -> Columns:
    """Return numbers with correlations up to .9, and the score of what is hidden."""
    n = len(group)
    hidden = draws.normal(0.2 * group[:, None], 1, (n, 4))
    parts = np.sin(np.outer(np.arange(4) + 1, np.arange(25)))
    x = (hidden @ parts + 0.5 * draws.normal(size=(n, 25))).round(3)
    return _numbered("x", x), hidden @ np.array([1.0, -0.8, 0.6, 0.0]) + 0.4 * x[:, 0] - 0.2
