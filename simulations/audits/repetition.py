"""What an attacker finds in the noise of a run's releases: noise that comes back, is shared, or is too small.

Noise of standard deviation 1 is expected in every number, independent of all others. Each test has a third of the
error, shared evenly among its comparisons, so that a run without a mistake is accused with a probability of at most
1 - confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.float64]

_SAME = 1e-9  # two numbers of noise that are as near as this, in standard deviations, are the same


@dataclass(frozen=True)
class Suspicion:
    """What one test found: the releases it is about, in words, the value, and the limit that chance stays within."""

    test: str
    where: str
    value: float
    limit: float


@dataclass(frozen=True)
class Noise:
    """The noise of one release, in expected standard deviations.

    Args:
        name: The release in words.
        layers: The numbers by name of the tensor that carries them, each `[m]`.
    """

    name: str
    layers: Mapping[str, Floats]

    @property
    def numbers(self) -> Floats:
        """All numbers in a row."""
        return np.concatenate(list(self.layers.values()))


def suspicions(releases: Sequence[Noise], confidence: float) -> list[Suspicion]:
    """Return what is wrong with the noise of some releases; an empty list if nothing is found."""
    error = (1 - confidence) / 3
    return [*_too_small(releases, error), *_correlated(releases, error), *_repeated(releases, error)]


def _too_small(releases: Sequence[Noise], error: float) -> list[Suspicion]:
    """Test every tensor's sum of squares over all releases, by the chi-squared distribution."""
    layers: dict[str, list[Floats]] = {}
    for release in releases:
        for name, numbers in release.layers.items():
            layers.setdefault(name, []).append(numbers)
    found = []
    for name, parts in layers.items():
        numbers = np.concatenate(parts)
        limit = math.sqrt(scipy.stats.chi2.ppf(error / len(layers), len(numbers)) / len(numbers))
        deviation = math.sqrt(float(np.square(numbers).mean()))
        if deviation < limit:
            found.append(Suspicion("too small", name, deviation, limit))
    return found


def _correlated(releases: Sequence[Noise], error: float) -> list[Suspicion]:
    """Test the correlation of every two releases of equally many numbers, without taking off their means.

    The sum of products of two independent normal vectors `[m]` exceeds m r with a probability of at most
    2 exp(-m (s - 1 - log((1 + s) / 2)) / 2) with s = sqrt(1 + 4 r^2), by Chernoff's bound.
    """
    by_size: dict[int, list[Noise]] = {}
    for release in releases:
        by_size.setdefault(len(release.numbers), []).append(release)
    pairs = sum(len(alike) * (len(alike) - 1) // 2 for alike in by_size.values())
    found = []
    for size, alike in by_size.items():
        stacked = np.stack([release.numbers for release in alike])
        products = np.triu(stacked @ stacked.T, 1) / size
        limit = _largest_product(size, error / max(pairs, 1))
        for i, j in np.argwhere(np.abs(products) > limit):
            found.append(Suspicion("correlated", f"{alike[i].name} and {alike[j].name}", float(products[i, j]), limit))
    return found


def _largest_product(size: int, error: float) -> float:
    """Return what the mean product of two independent normal vectors exceeds in size with at most this probability."""

    def excess(r: float) -> float:
        """Return the logarithm of the bound less that of the error."""
        root = math.sqrt(1 + 4 * r * r)
        return math.log(2) - size / 2 * (root - 1 - math.log((1 + root) / 2)) - math.log(error)

    return float(scipy.optimize.brentq(excess, 0.0, 10.0 + 10 * math.log(2 / error) / size))


def _repeated(releases: Sequence[Noise], error: float) -> list[Suspicion]:
    """Test how many numbers of all releases come twice, at any place and with either sign."""
    numbers = np.abs(np.concatenate([release.numbers for release in releases]))
    owners = np.repeat(np.arange(len(releases)), [len(release.numbers) for release in releases])
    order = np.argsort(numbers)
    same = np.diff(numbers[order]) < _SAME
    expected = len(numbers) ** 2 * _SAME / math.sqrt(math.pi)  # |z| of normal z has a mean density of 1 / sqrt(pi)
    limit = float(scipy.stats.poisson.isf(error, expected))
    if same.sum() <= limit:
        return []
    first, second = owners[order[:-1]][same], owners[order[1:]][same]
    pairs, times = np.unique(np.sort(np.stack([first, second]), axis=0), axis=1, return_counts=True)
    i, j = pairs[:, times.argmax()]
    return [Suspicion("repeated", f"{releases[i].name} and {releases[j].name}, most often", float(same.sum()), limit)]
