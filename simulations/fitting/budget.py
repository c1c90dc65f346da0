"""How a fit divides its epsilon: the kinds of columns cost every record, then each part of the split costs its own.

All releases are Gaussian and read all records of a part, so they add up by mu^2, mu = 1 / noise multiplier (Dong, Roth
and Su 2022): no sampling is involved, and nothing is lost by composition.

The terms of a private selection among trainings: what it may cost, what a trial runs, and what cannot be asked.

How many features a table of some size can bear: the noise of second moments against what they are.

The noise on S, `[d, d]`, is a matrix of spectral norm s sqrt(2 d); the eigenvalues of S are n / d on average. So the
noise is small where n is large beside s d^1.5 (`docs/moments.md`). The factor is what made-up and published tables
bear without losing a hundredth of accuracy.

And the noise of a score against what scores tell. A bin of n / d records whose log-odds are t off the usual moves V,
the features of one class less those of the other, by about n / d p (1 - p) t, of a share p of one class; the noise is s
whatever p is. So t is off by about s d / (n p (1 - p)): it is small where n 4 p (1 - p) is large beside s d. That rule
bites where a class is rare alone. Its factor is what a made-up table with 2 % positives wants, and what published
tables with a tenth of one class bear without losing any.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedfair.accounting import Accountant, Release, calibrate, multiplier_of
from fedfair.accounting import epsilon as epsilon_of
from fedfair.accounting.selection import Charged, Selection
from fedfair.mechanisms.noise import Trust
from fedfair.moments.sums import SENSITIVITY
from simulations.fitting.candidates import Among, Candidate
from simulations.settings.experiment import Experiment
from strategies.server.budget_shares import (
    CATEGORIES_SHARE,
    FIGURES_SHARE,
    KINDS_SHARE,
    PREPROCESSING_SHARE,
    with_share,
)

_MOST = 1e-6
"""Delta is at most this."""


class Budget(NamedTuple):
    """What each release may cost.

    Attributes:
        kinds: Noise multiplier of the counts by which kinds of columns are told; None if all are known.
        target_epsilon: Epsilon of what training records are asked beside: preprocessing and moments.
        figures_epsilon: Epsilon of what a held-out record is asked beside; where none is, of figures of training
            records.
    """

    kinds: float | None
    target_epsilon: float
    figures_epsilon: float

    @property
    def released(self) -> Release | None:
        """The release of the kinds of columns."""
        return None if self.kinds is None else Release(1.0, self.kinds)


def default_delta(rows: int) -> float:
    """Return delta for a table: 1 over ten times its number of rows, which is public, but at most 1e-6.

    Args:
        rows: Number of rows.
    """
    return min(_MOST, 1 / (10 * rows))


def chosen_delta(asked: float | None, rows: int) -> float:
    """Return the delta that is asked for, or that of a table where none is.

    Args:
        asked: Delta; None for `default_delta`.
        rows: Number of rows.

    Raises:
        ValueError: If it is not between 0 and 1.
    """
    if asked is None:
        return default_delta(rows)
    if not 0 < asked < 1:
        raise ValueError(f"delta is {asked:g}, but noise keeps no epsilon at a delta of 0, and 1 promises nothing: "
                         f"take one between, or leave it out for {default_delta(rows):g}")
    return asked


def divided(epsilon: float, delta: float, accountant: Accountant, has_unknown: bool, holds_out: bool = True) -> Budget:
    """Divide an epsilon at delta.

    Args:
        epsilon: Epsilon that any record is kept within.
        delta: Delta of it.
        accountant: How releases are composed.
        has_unknown: Whether kinds of columns are to be told.
        holds_out: Whether figures are of records that train nothing; else training records are charged for them.
    """
    if not has_unknown and holds_out:
        return Budget(None, epsilon, epsilon)
    left = (1 - CATEGORIES_SHARE) * delta  # the rest is for categories of single records
    least = multiplier_of(epsilon, left, accountant)
    kinds = KINDS_SHARE if has_unknown else 0.0
    figures = 0.0 if holds_out else FIGURES_SHARE
    trained = epsilon_of({Release(1.0, with_share(least, 1 - kinds - figures)): 1}, left, accountant)
    measured = trained if holds_out else epsilon_of({Release(1.0, with_share(least, figures)): 1}, delta, accountant)
    return Budget(with_share(least, kinds) if kinds else None, trained, measured)


@dataclass(frozen=True)
class Terms:
    """What a selection may cost.

    Attributes:
        among: What is selected among.
        epsilon: Epsilon that any record is kept within.
        delta: Its delta.
        accountant: How releases are composed.
        kinds: Release of which all records are charged already, or None.
    """

    among: Among
    epsilon: float
    delta: float
    accountant: Accountant
    kinds: Release | None

    def trial(self, *beside: Release, delta: float | None = None) -> Selection:
        """Return a selection that keeps a record within epsilon, with what else it is charged.

        Args:
            *beside: Releases besides that of the kinds of columns.
            delta: Delta that is left; None for all.
        """
        def charged(multiplier: float) -> Counter[Charged]:
            """Return all that a record is charged."""
            charges: Counter[Charged] = Counter([*beside, *filter(None, [self.kinds])])
            return charges + Counter([self.selection(multiplier)])

        return self.selection(calibrate(charged, self.epsilon, self.delta if delta is None else delta, self.accountant))

    def selection(self, multiplier: float) -> Selection:
        """Return the selection of trials that cost as much as one Gaussian release.

        Args:
            multiplier: Noise multiplier of that release.
        """
        return Selection(multiplier, self.among.trials)


def experiment_of(made: Experiment, candidate: Candidate, cost: Selection) -> Experiment:
    """Return the settings of a candidate's run.

    Args:
        made: Settings of the fit, with the epsilon that preprocessing takes its share of.
        candidate: Method and settings.
        cost: What a trial may cost.
    """
    assert made.target_epsilon is not None
    if candidate.method == "moments":
        candidate = candidate._replace(settings={"options": made.options})
    own = candidate.with_noise(cost.multiplier)
    options = own.pop("options", {})
    return Experiment(**{**made.settings(), "csv": made.csv, **own, "options": options, "strategy": candidate.method,
                         "target_epsilon": None, "preprocessing_epsilon": PREPROCESSING_SHARE * made.target_epsilon})


def refuse_unfit(made: Experiment, wanted: Mapping[str, Any], gap: float | None, among: Among) -> None:
    """Raise `ValueError` for what a selection cannot do, before anything is released.

    Args:
        made: Settings of the fit.
        wanted: Those among them that a person gave.
        gap: Largest gap that is asked for, or None.
        among: What is selected among.
    """
    if gap is not None:
        raise ValueError(f"the gap is {gap:g}, but only the front of moments has models with smaller gaps, and a "
                         "selection is by accuracy alone: leave gap out, or fit moments alone")
    if made.options.get("monotone"):
        raise ValueError(f"monotone is asked of {', '.join(made.options['monotone'])}, but only the front of moments "
                         "has models whose scores go one way: leave monotone out, or fit moments alone")
    if made.randomness != "system":
        raise ValueError(f"randomness is {made.randomness!r}, but trials of one candidate would then share their "
                         'noise: take randomness = "system", or fit moments alone')
    if made.trust is not Trust.CENTRAL:
        raise ValueError(f"trust is {made.trust.value!r}, but all trials but one stay secret, so who makes them must "
                         'be trusted: take trust = "central", or fit moments alone')
    if made.split[1] == 0:
        raise ValueError(f"split is {list(made.split)}, but trials are compared on the validation part: give it a "
                         "share")
    for candidate in among.candidates():
        for name in (*candidate.settings, "count_noise_multiplier"):
            if name in wanted and name != "options":
                raise ValueError(f"{name} is among the settings, but the selection chooses it: leave it out")
        experiment_of(made, candidate, Selection(1.0, among.trials))


FEWEST_BINS, MOST_BINS = 4, 10
_ENOUGH, _AMPLE = 1.2, 3.0  # from which on noise costs little, and hardly anything
_TOLD = 6.0  # from which on the noise of scores leaves what they tell of a rare class
_CATEGORIES = 4  # of a column, about, before they are known


class Needed(NamedTuple):
    """What would be enough: as many training records at this epsilon, or this epsilon with the records there are."""

    records: int
    epsilon: float


def bins_for(records: int, numbers: int, others: int, deviation: float, evenness: float | None = None) -> int:
    """Return the number of bins of each number, by what is public or was released.

    Args:
        records: Number of training records n.
        numbers: Number of columns of numbers.
        others: Number of columns of categories.
        deviation: Standard deviation s of the noise on the sums.
        evenness: How evenly classes were told to divide records, 4 p (1 - p) of two (`kinds.evenness_of`); None where
            no release told it.

    Examples:
        >>> bins_for(20_000, 6, 1, 6.4), bins_for(20_000, 6, 1, 6.4, 0.08)
        (10, 6)
    """
    width = (math.sqrt(2) * records / (_AMPLE * deviation)) ** (2 / 3)
    if evenness is not None:
        width = min(width, records * evenness / (_TOLD * deviation))
    wanted = int((width - 1 - _CATEGORIES * others) / max(numbers, 1))
    return min(max(wanted, FEWEST_BINS), MOST_BINS)


def needed(records: int, width: int, multiplier: float, cost: Callable[[float], float]) -> Needed | None:
    """Return what would be enough for as many features; None if there is enough.

    Args:
        records: Number of training records n.
        width: Number of features d.
        multiplier: Noise multiplier of the moments.
        cost: From a noise multiplier to epsilon.
    """
    least = _ENOUGH * SENSITIVITY * multiplier * width**1.5 / math.sqrt(2)
    if records >= least:
        return None
    return Needed(math.ceil(least), cost(multiplier * records / least))
