"""Second moments of bins and categories with most of their noise taken out, as records have them on average.

A record has one feature of each column, c, and l in the constant one. So within a column S is diagonal, c^2 times
numbers of records n_j, which the release tells several times (`fedfair.moments.filled_bins`). Between columns that had
nothing to do with each other it would be c^2 n_i n_j / n. What S differs from that by is kept in the share
in which differences are larger than noise, v / (v + s^2 / 2) for a variance of v beside the noise's: the best linear
estimate where differences are alike (Efron and Morris 1973).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Encoding
from fedfair.moments.filled_bins import Filled, columns_of, is_complete
from fedfair.moments.release import Pooled


def denoised(pooled: Pooled, bins: Filled, encoding: Encoding) -> Tensor:
    """Return S with most of its noise taken out, `[k, k]`.

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
    value, last, width = pooled.last / encoding.bounding.constant, pooled.last, len(bins.kept)
    column = _columns(bins, encoding)
    numbers, whole = _numbers(pooled, bins, encoding, column)
    sums = torch.cat([value * numbers, torch.tensor([last * whole], dtype=torch.float64)])
    alike = column[:, None] == column
    apart = torch.outer(sums, sums) / whole
    expected = torch.where(alike, torch.diag(torch.cat([value**2 * numbers, sums[-1:] * last])), apart)
    between = ~alike
    between[-1], between[:, -1] = False, False
    if not bool(between.any()):
        return expected
    differences, noise = pooled.second - expected, pooled.noise_second**2 / 2
    variance = max(float((differences[between]**2).mean()) - noise, 0.0)
    kept = variance / (variance + noise) if noise else 1.0
    return expected + torch.where(between, kept * differences, torch.zeros(width, width, dtype=torch.float64))


def _columns(bins: Filled, encoding: Encoding) -> Tensor:
    """Return the number of the column of each feature, `[k]`; that of the constant one is its own."""
    every = torch.full((len(encoding.features) + 1,), -1)
    for number, places in enumerate(columns_of(encoding.features).values()):
        every[places] = number
    return every[bins.kept]


def _numbers(pooled: Pooled, bins: Filled, encoding: Encoding, column: Tensor) -> tuple[Tensor, float]:
    """Return about how many records have each feature but the constant one, `[k - 1]`, and how many there are."""
    assert bins.records is not None
    numbers = bins.records.numbers[bins.kept[:-1]].clamp(min=0)
    complete = [number for number, name in enumerate(columns_of(encoding.features)) if is_complete(name, encoding)]
    sums = [numbers[column[:-1] == number].sum() for number in complete]
    whole = torch.stack([pooled.second[-1, -1] / pooled.last**2, *sums]).mean().clamp(min=1.0)
    for number, total in zip(complete, sums, strict=True):
        numbers[column[:-1] == number] *= whole / total.clamp(min=1.0)
    return numbers, float(whole)
