"""How a fit divides its epsilon: the kinds of columns cost every record, then each part of the split costs its own.

All releases are Gaussian and read all records of a part, so they add up by mu^2, mu = 1 / noise multiplier (Dong, Roth
and Su 2022): no sampling is involved, and nothing is lost by composition.

How many features a table of some size can bear: the noise of second moments against what they are.

The noise on S, `[d, d]`, is a matrix of spectral norm s sqrt(2 d); the eigenvalues of S are n / d on average. So the
noise is small where n is large beside s d^1.5 (`docs/moments.md`). The factor is what made-up and published tables
bear without losing a hundredth of accuracy.

And the noise of a score against what scores tell. A bin of n / d records whose log-odds are t off the usual moves V,
the features of one class less those of the other, by about n / d p (1 - p) t, of a share p of one class; the noise is s
whatever p is. So t is off by about s d / (n p (1 - p)): it is small where n 4 p (1 - p) is large beside s d. That rule
bites where a class is rare alone. Its factor is what a made-up table with 2 % positives wants, and what published
tables with a tenth of one class bear without losing any.

What several fits of the same records spend together, a cross-validation or a grid, is counted in a file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from fedfair.accounting import Accountant, Release, multiplier_of
from fedfair.accounting import epsilon as epsilon_of
from fedfair.accounting.figures import up
from fedfair.mechanisms.noise import most_records, no_room
from fedfair.moments.logistic import AUTO_STEPS
from fedfair.moments.sums import CLASSES, SENSITIVITY
from fedfair.plugins.text_values import from_json
from strategies.server.budget_shares import CATEGORIES_SHARE, FIGURES_SHARE, KINDS_SHARE, with_share

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


def refuse_large(rows: int, classes: int, split: Sequence[float], budget: Budget, delta: float,
                 accountant: Accountant) -> None:
    """Raise `ValueError` for a table whose sums the grid of discrete noise has no room for, by public numbers alone.

    The moments and each logistic step have an equal part of what training may spend, and a record adds at most
    sqrt(1 / 2) to a number of them, since no coordinate of its features is larger beside a constant one
    (`fedfair.datasets.features.encoding.Bounding`). Whatever else reads all rows has more noise. Figures of a held-out
    part have at most what that may spend, and a record adds 1.

    Args:
        rows: Number of rows.
        classes: Number of classes.
        split: Shares of the training, validation and test part.
        budget: What each release may cost.
        delta: Delta of the fit.
        accountant: How releases are composed.

    Examples:
        >>> refuse_large(10**6, 2, (0.7, 0.1, 0.2), Budget(None, 1.0, 1.0), 1e-7, "pld")
    """
    rounds = 1 + (AUTO_STEPS if classes == CLASSES else 0)
    multiplier = with_share(multiplier_of(budget.target_epsilon, delta, accountant), 1 / rounds)
    trained = math.sqrt(2) * SENSITIVITY * multiplier
    measured = multiplier_of(budget.figures_epsilon, delta, accountant)
    most = int(min(most_records(deviation) / share for share, deviation
                   in zip(split, (trained, measured, measured), strict=True) if share))
    if rows > most:
        raise no_room(rows, most)


FEWEST_BINS, MOST_BINS = 6, 15
_ENOUGH, _AMPLE = 1.2, 2.0  # from which on noise costs little, and hardly anything
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
        (15, 6)
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


class Spending:
    """A count of fits in one file, to which each of them adds a line before it releases anything.

    A fit of a part of the records counts in full: a row may be in every part. Epsilons and deltas add up, which holds
    whatever the fits are (Dwork and Roth 2014, Theorem 3.16). Fits in several processes may share the file.

    Args:
        path: The file; it is made by the first fit. Give another one for other records.

    Examples:
        >>> spending = Spending(Path("people.fits.jsonl"))
        >>> for _ in range(5):
        ...     spending.charge(0.2, 1e-6)
        >>> spending.fits, round(spending.epsilon, 6), spending.told()
        (5, 1.0, '5 fits that are counted in people.fits.jsonl cost every row epsilon 1 at delta 5e-06 together')
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def charge(self, epsilon: float, delta: float) -> None:
        """Count a fit that is about to begin; when this returns, the line is on the disk.

        Args:
            epsilon: Its epsilon.
            delta: Its delta.

        Raises:
            OSError: If the line cannot be written; then nothing may be released.
            ValueError: If the file holds something else.
        """
        if self.path.exists() and not self.path.is_file():
            raise self._no_count()  # a device or a pipe would keep no line
        with FileLock(f"{self.path.resolve()}.lock"):
            ends = not self._lines() or self.path.read_bytes().endswith(b"\n")  # not all editors end the last line
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" * (not ends) + json.dumps({"epsilon": epsilon, "delta": delta}) + "\n")
                file.flush()
                os.fsync(file.fileno())

    @property
    def fits(self) -> int:
        """Number of fits, also of those that did not end."""
        return len(self._lines())

    @property
    def epsilon(self) -> float:
        """Sum of their epsilons."""
        return sum(line["epsilon"] for line in self._lines())

    @property
    def delta(self) -> float:
        """Sum of their deltas."""
        return sum(line["delta"] for line in self._lines())

    def told(self) -> str:
        """Return the sum in words."""
        fits = self.fits
        return (f"{fits} fit{'s' * (fits != 1)} that {'are' if fits != 1 else 'is'} counted in {self.path.name} "
                f"cost{'s' * (fits == 1)} every row epsilon {up(self.epsilon, '.3g')} at delta {up(self.delta, '.1g')}"
                + " together" * (fits != 1))

    def _lines(self) -> list[dict[str, float]]:
        """Return a line for each fit; raise `ValueError` for a file that holds something else."""
        if not self.path.exists():
            return []
        try:
            lines = [from_json(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
            counted = [{name: float(line[name]) for name in ("epsilon", "delta")} for line in lines]
            if not all(math.isfinite(spent) and spent >= 0 for line in counted for spent in line.values()):
                raise ValueError("no fit costs less than nothing")
            return counted
        except (ValueError, KeyError, TypeError):
            raise self._no_count() from None

    def _no_count(self) -> ValueError:
        """Return the error for a file that holds something else."""
        return ValueError(f"{self.path} is no count of fits: name a file that is not there yet, or one that a fit has "
                          "begun")
