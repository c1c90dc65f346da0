"""Numbers of records of each bin and category, which released sums tell: who has a say, and S without most noise.

Each category and each bin of a number is a feature that is c for its records and 0 for others; the last feature is l
for all. So the number n_j of records of feature j is in the sums several times, each with noise of its own:

    n_j = S_jj / c^2  =  S_jd / (c l)  =  sum_k V_kj / c  =  sum_i S_ji / c^2  over all bins i of another column

and their mean N_j by inverse variances is the most exact. Within three deviations sigma of 0 it is taken for 0.
Classifiers are fitted without such a feature, and then its weight is what decides nothing: the mean of its column's
other weights over records, or where bins have an order, of the next ones that records fill. (To fit with these ties
would add the noise of empty bins to others; it was measured to be worse.) In the end the mean of each column's weights
over records becomes part of what every record gets, which changes no decision: a score of 0 is that of what decides
nothing, and a column of which one feature is left has no other.

With little epsilon or few rows three deviations are many records, whom a model without their features decides worse. So
a number of more than a hundredth of all records is taken for 0 only where 0 is nearer the truth on average: N_j is off
by sigma^2 in square, and n_j^2 is N_j^2 - sigma^2 on average, so up to N_j = sqrt(2) sigma. That fits are better so was
measured (docs/moments.md).

All of it is post-processing. A model that scores by noise alone where nobody was: Nori et al. 2021 (DP-EBM), whose
library sets such scores to 0.

The same numbers take most of the noise out of the second moments (`denoised`). A record has one feature of each column,
c, and l in the constant one. So within a column S is diagonal, c^2 n_j. Between columns that had nothing to do with
each other it would be c^2 n_i n_j / n. What S differs from that by adds up to nothing over the bins of a column of
which every record has one, so its mean there is noise, and taken off. It is kept in the share in which differences are
larger than noise, v / (v + s^2 / 2) for a variance of v beside the noise's: the best linear estimate where differences
are alike (Efron and Morris 1973). v is that of two columns alone where they stand out, and else that of all others: one
share would shrink what hangs together most, as marriage and relationship do, by as much as noise.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import OTHER, Encoding, Feature
from fedfair.moments.release import Moments, Pooled

_STANDS_OUT = 3.0  # deviations of the noise of a number of records
_NEARER = math.sqrt(2)  # the same: from there on the number is nearer the truth than 0 is, on average
_MANY = 0.01  # of all records
_EXACT = 1e-6  # least deviation that is counted with
_DEPEND = 8.0  # deviations of a sum of squares from where on two columns are told to hang together


class Records(NamedTuple):
    """About how many records have each feature but the constant one.

    Attributes:
        numbers: Noisy numbers, `[d - 1]`.
        deviations: Standard deviations of their noise, `[d - 1]`.
        every: About how many records there are.
    """

    numbers: Tensor
    deviations: Tensor
    every: float

    @property
    def told(self) -> Tensor:
        """Whether each number stands out of its noise, `[d - 1]`."""
        return self.numbers > _STANDS_OUT * self.deviations

    @property
    def filled(self) -> Tensor:
        """Whether each feature is taken to be some record's, `[d - 1]`: told, or many and nearer the truth than 0."""
        return self.told | (self.numbers > (_NEARER * self.deviations).clamp(min=_MANY * self.every))

    @property
    def rounded(self) -> Tensor:
        """Whole numbers, 0 where no record is taken to have the feature, `[d - 1]`."""
        return torch.where(self.filled, self.numbers, 0.0).round()


class Filled(NamedTuple):
    """The features that classifiers are fitted to, and what the weights of the others are.

    Attributes:
        kept: Positions of the features that are fitted to, rising, `[k]`.
        lift: Matrix from these weights to those of all features, `[d, k]`.
        ending: The same for the weights that a run ends with, whose mean over records is 0 in each column.
        records: About how many records have each feature; None where features are not counted.
    """

    kept: Tensor
    lift: Tensor
    ending: Tensor
    records: Records | None


def is_counted(encoding: Encoding) -> bool:
    """Return whether all features are categories or bins, so that sums of them are numbers of records.

    Args:
        encoding: How the columns of a table became features.
    """
    return encoding.bounding is not None and bool(encoding.features) and all(
        feature.category is not None or feature.bin is not None or feature.missing for feature in encoding.features)


def filled(moments: Moments, encoding: Encoding) -> Filled:
    """Return which features classifiers are fitted to, and what the weights of the others are.

    Args:
        moments: What was released, of d features.
        encoding: How the columns of a table became the features.
    """
    width = moments.first.shape[1]
    whole = torch.eye(width, dtype=torch.float64)
    if not is_counted(encoding):
        return Filled(torch.arange(width), whole, whole, None)
    assert encoding.bounding is not None
    records = numbers_of_records(moments, encoding)
    lift, centre, has_say = whole.clone(), whole.clone(), records.filled
    for column, places in columns_of(encoding.features).items():
        own = [place for place in places if has_say[place]] or [max(places, key=records.numbers.__getitem__)]
        mean = _mean(own, records.numbers, width)
        for place in set(places) - set(own):
            lift[place] = _next(place, own, encoding.features, mean)
        if _is_complete(column, encoding):
            centre[places] -= mean
            centre[-1] += mean / encoding.bounding.constant
    kept = (lift.diagonal() == 1).nonzero().flatten()
    return Filled(kept, lift[:, kept], (centre @ lift)[:, kept], records)


def numbers_of_records(moments: Moments, encoding: Encoding) -> Records:
    """Return about how many records have each feature.

    Args:
        moments: What was released, of d features.
        encoding: How the columns of a table became the features: categories and bins.
    """
    assert encoding.bounding is not None
    pooled, value = moments.pooled(), moments.last / encoding.bounding.constant
    sums, noise = moments.sum_of_features()
    width, deviation = len(sums), pooled.noise_second / value**2
    nowhere: list[int] = []
    found = [(pooled.second.diagonal() / value**2, deviation, nowhere),
             (pooled.second[:, -1] / (value * moments.last), deviation * value / moments.last / math.sqrt(2), nowhere),
             (sums / value, noise / value, nowhere)]
    for column, places in columns_of(encoding.features).items():
        if _is_complete(column, encoding):
            across = pooled.second[:, places].sum(1) / value**2
            found.append((across, deviation * math.sqrt(len(places) / 2), places))
    total, precision = torch.zeros(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    for numbers, of_noise, apart in found:
        weight = torch.full((width,), max(of_noise, _EXACT) ** -2, dtype=torch.float64)
        weight[apart] = 0.0
        total, precision = total + weight * numbers, precision + weight
    return Records((total / precision)[:-1], precision.rsqrt()[:-1], float(pooled.records))


def columns_of(features: Sequence[Feature]) -> Mapping[str, list[int]]:
    """Return the positions of the features of each column.

    Args:
        features: Categories and bins, which are features.
    """
    places: dict[str, list[int]] = {}
    for place, feature in enumerate(features):
        places.setdefault(feature.column, []).append(place)
    return places


def numbers_of_columns(bins: Filled, encoding: Encoding) -> Tensor:
    """Return the number of the column of each feature that classifiers are fitted to, `[k]`; -1 for the constant one.

    Args:
        bins: Which features these are.
        encoding: How columns became all features: categories and bins.
    """
    every = torch.full((len(encoding.features) + 1,), -1)
    for number, places in enumerate(columns_of(encoding.features).values()):
        every[places] = number
    return every[bins.kept]


def _complete(encoding: Encoding) -> list[int]:
    """Return the numbers of the columns of which every record has a feature."""
    return [number for number, name in enumerate(columns_of(encoding.features)) if _is_complete(name, encoding)]


def _is_complete(column: str, encoding: Encoding) -> bool:
    """Return whether every record has one of a column's features, as far as its kind tells."""
    own = [feature for feature in encoding.features if feature.column == column]
    if any(feature.column == column for feature in encoding.left_out):
        return False
    names = {feature.category for feature in own}
    return own[0].category is None or OTHER in names or column not in encoding.listed


def _mean(own: Sequence[int], numbers: Tensor, width: int) -> Tensor:
    """Return how much of each weight, `[d]`, the mean over the records of a column's features is."""
    row, counts = torch.zeros(width, dtype=torch.float64), numbers[list(own)].clamp(min=1.0)
    row[list(own)] = counts / counts.sum()
    return row


def _next(place: int, own: Sequence[int], features: Sequence[Feature], mean: Tensor) -> Tensor:
    """Return how much of each weight, `[d]`, that of a feature without records is: of the next bins, or of the mean."""
    ordered = [other for other in own if features[other].bin is not None]
    at = bisect(ordered, place)
    near = ordered[max(at - 1, 0):at + 1] if features[place].bin is not None else []
    if not near:
        return mean
    row = torch.zeros_like(mean)
    row[near] = 1 / len(near)
    return row


class Denoised(NamedTuple):
    """S with most of its noise taken out.

    Attributes:
        second: S, `[k, k]`.
        off: What it is still off by: S w, for any weights w, by a variance of w' `off` w on average, `[k, k]`.
        means: Means of the features, `[k]`.
        lost: Which share of what differs from independence is taken out, `[k, k]`.
    """

    second: Tensor
    off: Tensor
    means: Tensor
    lost: Tensor


def denoised(pooled: Pooled, bins: Filled, encoding: Encoding) -> Denoised:
    """Return S with most of its noise taken out.

    Args:
        pooled: Moments of the k features that classifiers are fitted to.
        bins: Which these are, and about how many records have each.
        encoding: How the columns of a table became all features.

    Raises:
        ValueError: For features that are not counted.
    """
    if bins.records is None or encoding.bounding is None:
        raise ValueError("features are not all bins or categories, of which records have one a column: take features = "
                         '"binned"')
    value, last = pooled.last / encoding.bounding.constant, pooled.last
    column = numbers_of_columns(bins, encoding)
    numbers, whole = _numbers(pooled, bins, encoding, column)
    sums = torch.cat([value * numbers, torch.tensor([last * whole], dtype=torch.float64)])
    alike = column[:, None] == column
    apart = torch.outer(sums, sums) / whole
    expected = torch.where(alike, torch.diag(torch.cat([value**2 * numbers, sums[-1:] * last])), apart)
    differences = (pooled.second - expected).masked_fill(alike, 0.0)
    differences[-1] = differences[:, -1] = 0.0
    blocks = torch.nn.functional.one_hot(column + 1).double()  # the constant one is a block of its own
    sizes, told = blocks.sum(0), torch.zeros(blocks.shape[1], dtype=torch.float64)
    told[[0, *(number + 1 for number in _complete(encoding) if number + 1 < len(told))]] = 1.0  # sums over their bins
    centre = torch.eye(len(column), dtype=torch.float64) - (blocks * (told / sizes.clamp(min=1.0))) @ blocks.T
    free, noise = (sizes - told).clamp(min=0.0), pooled.noise_second**2 / 2
    differences = centre @ differences @ centre
    kept = _kept(blocks.T @ differences.square() @ blocks, torch.outer(free, free).fill_diagonal_(0.0), noise)
    off = blocks @ (noise * free @ kept) / len(column)
    lost = 1 - blocks @ kept @ blocks.T
    return Denoised(expected + (1 - lost) * differences, (centre * off) @ centre, sums / whole,
                    lost.masked_fill(alike, 0.0) * (column >= 0) * (column >= 0)[:, None])


def _kept(squares: Tensor, free: Tensor, noise: float) -> Tensor:
    """Return which share is kept of what differs between any two columns: their own where they stand out of noise.

    Args:
        squares: Sums of squares of the differences, `[columns, columns]`.
        free: How many differences are not told by others; 0 within a column.
        noise: Variance of the noise on each.
    """
    apart = squares - free * noise
    out = apart > _DEPEND * noise * (2 * free).sqrt()
    of_rest = (apart[~out].sum() / free[~out].sum().clamp(min=1.0)).clamp(min=0.0)
    variance = torch.where(out, apart / free.clamp(min=1.0), of_rest)
    return variance / (variance + max(noise, _EXACT**2))


def _numbers(pooled: Pooled, bins: Filled, encoding: Encoding, column: Tensor) -> tuple[Tensor, float]:
    """Return about how many records have each feature but the constant one, `[k - 1]`, and how many there are."""
    assert bins.records is not None
    numbers = bins.records.numbers[bins.kept[:-1]].clamp(min=0)
    complete = _complete(encoding)
    sums = [numbers[column[:-1] == number].sum() for number in complete]
    whole = torch.stack([pooled.records, *sums]).mean().clamp(min=1.0)
    for number, total in zip(complete, sums, strict=True):
        numbers[column[:-1] == number] *= whole / total.clamp(min=1.0)
    return numbers, float(whole)
