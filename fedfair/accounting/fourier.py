"""Composition of discretised privacy losses by their characteristic functions, always from above.

Losses of independent releases add up, so their characteristic functions multiply (Koskela et al. 2020; Gopi et al.
2021). Each release's is computed once for each knot (see `knots`), all are multiplied where the product is not
negligible, and one inverse transform gives the composed loss.

Before that, every loss is tilted: weighted by exp(t loss), with t where the tail bound exp(K(t) - t e) = delta is
smallest, K the composed log moment. The tilted losses gather near epsilon, so that rounding errors are small relative
to delta, however small delta is. Everything cut off is added to delta: losses above the window by Chernoff's bound,
infinite ones as they are, frequencies and float rounding as the most that they can change a probability.

The privacy loss of one Poisson-sampled Gaussian release on a grid, never below the true one.

The mass between two grid points is moved to these two points, and its probability under both neighbouring data sets is
kept ("connect the dots", Doroshenko et al. 2022, section 3). The result dominates the release, with an error of second
order in the grid's interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr, ndtri

from fedfair.accounting.knots import Floats, Integers, Mixture


class Loss(NamedTuple):
    """Probabilities `mass` `[m]` of the losses `first * interval`, `(first + 1) * interval`, ...; and of `infinite`."""

    first: int
    mass: Floats
    infinite: float


class Ratios(NamedTuple):
    """The density ratio of the outputs with and without a record, where it takes few values.

    Attributes:
        values: Its values above 0, ascending, `[n]`.
        mass: Their probabilities without the record, `[n]`.
        zero: Probability without the record that it is 0.
        infinite: Probability with the record that it is infinite, or that is taken for it.
    """

    values: Floats
    mass: Floats
    zero: float
    infinite: float

    @property
    def square(self) -> float:
        """Mean square of its logarithm without the record, where it is not 0."""
        return float(self.mass @ np.log(self.values) ** 2)

    def losses(self, interval: float) -> tuple[Loss, Loss]:
        """Return the losses when a record is removed, and when it is added (see `removal_and_addition`)."""
        steps = np.floor(np.log(self.values) / interval).astype(int)
        first, cells = int(steps[0]), int(steps[-1] - steps[0]) + 2
        grid = np.exp(interval * (first + np.arange(cells)))
        mass = split(self.values, self.mass, grid, steps - first)
        return Loss(first, mass * grid, self.infinite), Loss(1 - first - cells, mass[::-1], self.zero)


def split(values: Floats, mass: Floats, grid: Floats, cells: Integers) -> Floats:
    """Return the probabilities `[m]` of grid points when each value is moved to the two ends of its cell, by chance.

    Its mean is kept, so that no mean of a convex function becomes smaller.

    Args:
        values: Values, `[n]`.
        mass: Their probabilities, `[n]`.
        grid: Ascending points, `[m]`.
        cells: Number of the grid point before each value, `[n]`, at most m - 2.
    """
    width = grid[cells + 1] - grid[cells]
    upper = mass * np.clip((values - grid[cells]) / width, 0, 1)
    lower = np.bincount(cells, mass - upper, len(grid)).astype(float)
    return lower + np.bincount(cells + 1, upper, len(grid))


def removal_and_addition(rate: float, multiplier: float, interval: float, tail: float) -> tuple[Loss, Loss]:
    """Return the losses when a record is removed, and when it is added.

    Removal compares (1 - q) N(0, s^2) + q N(1, s^2) with N(0, s^2), addition the other way round; q is the rate, s the
    multiplier. `tail` is the probability that may count as an infinite loss.
    """
    reach = -ndtri(tail)
    ends = loss_at(np.array([-reach * multiplier, 1 + reach * multiplier]), rate, multiplier) / interval
    steps = np.arange(int(np.floor(ends[0])), int(np.ceil(ends[1])) + 1)
    losses: Floats = np.asarray(steps * interval, dtype=float)
    edges = _outcome(losses, rate, multiplier)
    below, plain, above = _masses(edges / multiplier)
    below_1, shifted, above_1 = _masses((edges - 1) / multiplier)
    mixed = (1 - rate) * plain + rate * shifted
    left = np.clip((plain * np.exp(losses[:-1]) - mixed * np.exp(-interval)) / -np.expm1(-interval), 0, mixed)
    dots = np.append(left, 0) + np.append(0, mixed - left)
    removal, addition = dots.copy(), dots * np.exp(-losses)
    removal[0] += (1 - rate) * below + rate * below_1
    addition[-1] += above
    return (Loss(int(steps[0]), removal, float((1 - rate) * above + rate * above_1)),
            Loss(-int(steps[-1]), addition[::-1], float(below)))


def loss_at(outcome: Floats, rate: float, multiplier: float) -> Floats:
    """Return the log density ratio at an outcome: log(1 - q + q exp((2x - 1) / (2 s^2)))."""
    gaussian = (2 * outcome - 1) / (2 * multiplier**2)
    return gaussian if rate == 1 else np.logaddexp(np.log1p(-rate), np.log(rate) + gaussian)


def _outcome(loss: Floats, rate: float, multiplier: float) -> Floats:
    """Return the outcome that has a loss; minus infinity for a loss below every outcome's."""
    if rate == 1:
        return multiplier**2 * loss + 0.5
    with np.errstate(divide="ignore", over="ignore"):
        excess = np.where(loss > 30, loss, np.log(np.maximum(np.expm1(np.minimum(loss, 30)) + rate, 0)))
    return np.asarray(multiplier**2 * (excess - np.log(rate)) + 0.5)


def _masses(edges: Floats) -> tuple[float, Floats, float]:
    """Return the standard normal probability below, between and above ascending edges, exact in both tails."""
    lower, upper = ndtr(edges), ndtr(-edges)
    right = edges[:-1] > 0
    return float(lower[0]), np.where(right, upper[:-1] - upper[1:], np.diff(lower)), float(upper[-1])


KNOT_RATIO = 1.02
"""Ratio of neighbouring knots in `knots.mixtures`."""

_FINENESS = 0.04  # of the grid, in standard deviations of one release's loss
_CELLS = 100_000  # of one release's loss, at most
_CUT = 1e-4  # of delta that each truncation may cost
_NEGLIGIBLE = -45.0  # log of a characteristic function
_CHUNK = 2_000_000  # numbers held at once
_MARGIN = 1e4  # of delta: how far above it a tail may be before it is tilted down
_POSITIVE = np.geomspace(1e-3, 1e4, 48)
_ORDERS = np.concatenate([-_POSITIVE[::-1], [0.0], _POSITIVE])


Spectrum = NDArray[np.complex128]


class Knots(NamedTuple):
    """A mixture with the losses of its knots in one direction."""

    mixture: Mixture
    losses: list[Loss]


class Window(NamedTuple):
    """A tilt, its log moment K(tilt), and grid points `first`, ..., `first + size - 1` that hold the tilted losses."""

    tilt: float
    log_moment: float
    first: int
    size: int


def compose(mixtures: Sequence[Mixture], delta: float, others: Sequence[tuple[Ratios, int]] = ()) -> float:
    """Return the epsilon at `delta` of all releases, the larger of the directions add and remove.

    `others` are releases of any other kind, each with how often it was made.
    """
    releases = sum(float(m.times.sum()) for m in mixtures) + sum(count for _, count in others)
    interval = _interval(mixtures, releases, others)
    tail = _CUT * delta / releases
    both = [[removal_and_addition(m.rate, knot, interval, tail) for knot in m.knots] for m in mixtures]
    both += [[ratios.losses(interval)] for ratios, _ in others]
    mixed = [*mixtures, *(_alone(count) for _, count in others)]
    return max(_epsilon([Knots(m, [pair[way] for pair in pairs]) for m, pairs in zip(mixed, both, strict=True)],
                        interval, delta) for way in (0, 1))


def _alone(count: int) -> Mixture:
    """Return a mixture of one knot, whose loss is known otherwise."""
    one = np.zeros(1, dtype=int)
    return Mixture(1.0, np.ones(1), one, one, np.ones(1), np.full(1, float(count)))


def _interval(mixtures: Sequence[Mixture], releases: float, others: Sequence[tuple[Ratios, int]] = ()) -> float:
    """Return the grid's interval: a small part of the standard deviation of a typical release's loss.

    That is about q sqrt(exp(1/s^2) - 1). The interval decides how close from above the result is, never whether it is
    above.
    """
    square = sum(count * ratios.square for ratios, count in others) / releases
    for m in mixtures:
        squares = np.minimum(m.rate**2 * np.expm1(np.minimum(m.knots**-2.0, 100.0)), m.knots**-2.0)
        square += float(m.times @ m.mixed(squares)) / releases
    widest = [float(loss_at(np.array([1 + 8 * m.knots[0]]), m.rate, m.knots[0])[0]) for m in mixtures]
    widest += [float(np.abs(np.log(ratios.values[[0, -1]])).max()) for ratios, _ in others]
    return float(max(_FINENESS * square**0.5, max(widest) / _CELLS))


def _epsilon(all_knots: Sequence[Knots], interval: float, delta: float) -> float:
    """Return the epsilon of the composition in one direction."""
    window = _window(all_knots, interval, delta)
    tilted, excess = _tilted(all_knots, interval, window)
    infinite = sum(float(k.mixture.times @ k.mixture.mixed(np.array([loss.infinite for loss in k.losses])))
                   for k in all_knots)
    losses: Floats = interval * (window.first + np.arange(window.size, dtype=float))
    with np.errstate(over="ignore"):
        mass = (np.maximum(tilted, 0) + excess) * np.exp(window.log_moment - window.tilt * losses)
    if not np.isfinite(mass[-1]):
        return float("inf")
    return _solve(losses, mass, delta, infinite + _CUT * delta)


def _solve(losses: Floats, mass: Floats, delta: float, more: float) -> float:
    """Return the epsilon at which the sum over losses above it of mass (1 - exp(epsilon - loss)), and `more`, is delta.

    The losses are evenly spaced. Between neighbours the sum is linear in exp(epsilon).
    """
    ratio = np.exp(losses[0] - losses[1])
    above, weighted = (_decaying_sums(mass[::-1], r)[::-1] for r in (1.0, ratio))
    with np.errstate(invalid="ignore"):
        enough = above - weighted + more <= delta  # at epsilon equal to each loss
    first = len(losses) - int(np.argmin(enough[::-1])) if not enough.all() else 0
    if first == len(losses):
        return float(losses[-1])
    inside = (above[first] + more - delta) / weighted[first]
    return float(max(0.0, min(losses[first] + np.log(inside), losses[first]))) if inside > 0 else 0.0


def _decaying_sums(values: Floats, ratio: float) -> Floats:
    """Return the sums y_i = x_i + ratio y_(i-1) of n values.

    They solve a system of two diagonals, and LAPACK's solver rounds as the filter of `scipy.signal` does, which takes
    longer to import than most noise takes to calibrate. The solver spreads what is not finite, and the filter does not.
    """
    n = len(values)
    if n > 2:
        ones, zeros = np.ones(n), np.zeros(n)
        sums: Floats = scipy.linalg.lapack.dgttrs(np.full(n - 1, -ratio), ones, zeros[1:], zeros[2:],
                                                  np.arange(1, n + 1, dtype=np.int32), values)[0]
        if np.isfinite(sums).all():
            return sums
    filtered: Floats = scipy.signal.lfilter([1.0], [1.0, -ratio], values)
    return filtered


def _window(all_knots: Sequence[Knots], interval: float, delta: float) -> Window:
    """Return the least tilt that is enough, and the losses that matter under it, by Chernoff's bound over `_ORDERS`.

    P(loss > x) <= exp(K(t) - t x) for positive t; the smallest x for which that is delta bounds epsilon.
    """
    moments = np.zeros(len(_ORDERS))
    for k in all_knots:
        of_knots = np.array([_moments(loss, interval) for loss in k.losses])
        with np.errstate(over="ignore", invalid="ignore"):
            moments += k.mixture.times @ np.log(k.mixture.mixed(of_knots))
    known = np.isfinite(moments)
    orders, moments = _ORDERS[known], moments[known]
    zero = int(np.flatnonzero(orders == 0)[0])
    up = slice(zero + 1, -1)
    bound = np.min((moments[up] - np.log(delta)) / orders[up])
    tails = moments[up] - orders[up] * bound
    tilt = zero + 1 + int(np.argmax(tails <= max(np.log(delta * _MARGIN), tails.min())))

    def quantiles(by: int, tail: float) -> Floats:
        """Return, by other order, a loss beyond which that tilted by `orders[by]` has probability at most `tail`."""
        apart = np.delete(orders - orders[by], by)
        return np.asarray((np.delete(moments, by) - moments[by] - np.log(tail)) / apart)

    most = max(quantiles(zero, _CUT * delta)[zero:].min(), quantiles(tilt, _CUT * delta)[tilt:].min())
    least = min(quantiles(zero, 0.01)[:zero].max(), quantiles(tilt, 1e-6)[:tilt].max(), most)
    first = int(np.floor(least / interval))
    size = int(np.ceil(most / interval)) + 1 - first
    return Window(float(orders[tilt]), float(moments[tilt]), first, next_fast_len(max(size, 16), real=True))


def _moments(loss: Loss, interval: float) -> Floats:
    """Return E exp(t loss) for t in `_ORDERS`; infinite where that is too large for a float."""
    values = interval * (loss.first + np.arange(len(loss.mass)))
    used = loss.mass > 0
    exponents = _ORDERS[:, None] * values[used]
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(exponents) @ loss.mass[used])


def _tilted(all_knots: Sequence[Knots], interval: float, window: Window) -> tuple[Floats, float]:
    """Return the tilted composed loss over the window, and the most that a probability in it may lack.

    The transform is periodic: losses outside the window reappear in it, which only adds to it.
    """
    spectra = [np.array([_spectrum(loss, interval, window) for loss in k.losses]) for k in all_knots]
    bounds = sum(_bound(k.mixture, spectrum) for k, spectrum in zip(all_knots, spectra, strict=True))
    used = np.flatnonzero(bounds > _NEGLIGIBLE)
    logs = sum(_log_product(k.mixture, spectrum[:, used]) for k, spectrum in zip(all_knots, spectra, strict=True))
    composed = np.zeros(window.size // 2 + 1, dtype=complex)
    composed[used] = np.exp(logs - window.log_moment)
    releases = sum(float(k.mixture.times.sum()) for k in all_knots)
    rounding = np.finfo(float).eps * np.log2(window.size) * releases * 2 * len(used) / window.size
    return np.roll(irfft(composed, window.size), -window.first), rounding + np.exp(_NEGLIGIBLE)


def _spectrum(loss: Loss, interval: float, window: Window) -> Spectrum:
    """Return the transform of one tilted loss: `[size // 2 + 1]`."""
    points = loss.first + np.arange(len(loss.mass))
    weights = loss.mass * np.exp(window.tilt * interval * points)
    return np.asarray(rfft(np.bincount(points % window.size, weights, window.size)))


def _bound(mixture: Mixture, spectra: Spectrum) -> Floats:
    """Return an upper bound on the log of the composed characteristic function's size, by frequency.

    A mixture's is at most the larger of its two knots', relative to frequency 0.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(spectra)) - np.log(spectra[:, :1].real)
    pairs, first, pair = np.unique(mixture.lower, return_index=True, return_inverse=True)
    counts = np.bincount(pair, mixture.times)
    return np.asarray(counts @ np.maximum(logs[pairs], logs[mixture.upper[first]]))


def _log_product(mixture: Mixture, spectra: Spectrum) -> Spectrum:
    """Return the log of the product of all releases' spectra, computed in pieces that fit into memory."""
    total = np.zeros(spectra.shape[1], dtype=complex)
    rows = max(1, _CHUNK // max(1, spectra.shape[1]))
    for start in range(0, len(mixture.times), rows):
        part = mixture.part(slice(start, start + rows))
        total += part.times @ np.log(part.mixed(spectra))
    return total
