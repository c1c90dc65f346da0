"""From the guesses of an attacker to a lower bound on epsilon, and what an ideal attacker would find.

Each of m canaries is in the training data with probability 1/2, independently. An attacker who sees what was released
gives every canary a score, positive where it thinks that the canary is in, and guesses on the canaries with the surest
scores. Under (epsilon, delta) differential privacy it cannot be right much more often than a biased coin. If it is,
epsilon must be larger (Steinke, Nasr and Jagielski 2023).

A mechanism's whole trade-off curve bounds more, in one run. It says how unlikely an event of probability p can be on a
neighbouring data set: `least(p)` at least (f-differential privacy; Dong, Roth and Su 2022). An attacker guesses on r
canaries; let p_i be the probability of exactly i right guesses. Flip one canary on which the guess is right, in a case
with at least i + 1 right guesses: then that guess is wrong, and at least i of the others are right. Averaged over all
canaries, with a convex `least`,

    sum_{j >= i} (r - j) p_j / m  >=  least( sum_{j >= i + 1} j p_j / m )        for every i.

If v right guesses or more had the probability `error`, these inequalities give, from i = v - 1 down to 0, the least
that all p_i together can be. A sum above 1 is a contradiction: so many right guesses are less likely than `error`
(Mahloujifar, Melis and Chaudhuri 2025, Algorithm 3). Canaries may disturb each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import ndtr, ndtri

SHARES = (1 / 50, 1 / 20, 1 / 10, 1 / 2)
"""Shares of the canaries that are guessed on, fixed before any result is seen."""

_LEVELS = np.arange(0.05, 1, 0.05)  # quantiles of the scores that `gaussian_bound` takes as thresholds
_GRID = np.linspace(0, 25, 51)  # of epsilon, to bracket the root between two of its points

Neighbours = Literal["add-or-remove", "replace"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Least = Callable[[float], float]
"""From the probability of an event on one data set to the least that it can be on a neighbour; convex, from 0 to 1."""

_STRAYS = 1e-9  # of mu, by which a root may be off


@dataclass(frozen=True)
class Bound:
    """A lower bound: with probability `confidence`, the mechanism is not (e, delta)-private for any e below `epsilon`.

    Of `canaries`, the attacker guessed on `guesses`, and `correct` of its guesses were right.
    """

    epsilon: float
    canaries: int
    guesses: int
    correct: int
    confidence: float


def lower_bound(scores: Floats, included: Bools, delta: float, confidence: float = 0.95,
                neighbours: Neighbours = "add-or-remove") -> Bound:
    """Return the largest of the bounds from guessing on several shares of the canaries, each at a quarter of the error.

    `scores` `[m]` are positive for "in"; those largest in size are guessed on. `included` `[m]` is the truth. With
    "replace", a canary is a pair of records of which one is in, the first if `included`. The bound is still on the
    epsilon of adding or removing one record.
    """
    return _best_share(scores, included, confidence, partial(_epsilon_at, delta=delta, neighbours=neighbours))


def _best_share(scores: Floats, included: Bools, confidence: float, epsilon: Callable[[int, int, int, float], float]
                ) -> Bound:
    """Return the largest of the bounds from guessing on several shares of the canaries, each at a quarter of the error.

    Args:
        scores: Positive for "in", `[m]`; those largest in size are guessed on.
        included: The truth, `[m]`.
        confidence: With which all of the bounds hold together.
        epsilon: From the numbers of canaries, guesses and right guesses, and the error, to a bound.
    """
    order = np.argsort(-np.abs(scores), kind="stable")
    right = ((scores > 0) == included)[order]
    error = (1 - confidence) / len(SHARES)
    bounds = []
    for share in SHARES:
        guesses = math.ceil(share * len(scores))
        correct = int(right[:guesses].sum())
        bounds.append(Bound(epsilon(len(scores), guesses, correct, error), len(scores), guesses, correct, confidence))
    return max(bounds, key=lambda bound: bound.epsilon)


def _epsilon_at(canaries: int, guesses: int, correct: int, error: float, delta: float, neighbours: Neighbours) -> float:
    """Return `epsilon_from_guesses`, its error before its delta."""
    return epsilon_from_guesses(canaries, guesses, correct, delta, error, neighbours)


def epsilon_from_guesses(canaries: int, guesses: int, correct: int, delta: float, error: float,
                         neighbours: Neighbours = "add-or-remove") -> float:
    """Return the largest epsilon at which `correct` or more correct guesses have a probability of at most `error`.

    Replacing a record is removing one and adding one: (2 epsilon, (1 + e^epsilon) delta).
    """

    def excess(epsilon: float) -> float:
        """Return how far the p-value of a claimed epsilon is above `error`; at 0 or more the claim is not refuted."""
        if neighbours == "replace":
            return p_value(canaries, guesses, correct, 2 * epsilon, (1 + math.exp(epsilon)) * delta) - error
        return p_value(canaries, guesses, correct, epsilon, delta) - error

    first = next((place for place, epsilon in enumerate(_GRID) if excess(epsilon) >= 0), None)
    if first is None:
        return float(_GRID[-1])
    return float(scipy.optimize.brentq(excess, _GRID[first - 1], _GRID[first])) if first else 0.0


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least `correct` right guesses under (epsilon, delta) differential privacy.

    Steinke et al. 2023, Theorem 5.2: P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i, for m canaries and r guesses, v
    of them correct. W is binomial, of r draws with probability e^epsilon / (1 + e^epsilon).
    """
    coin = 1 / (1 + math.exp(-epsilon))
    pure = float(scipy.stats.binom.sf(correct - 1, guesses, coin))
    below = np.cumsum(scipy.stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, coin))
    worst = float(np.max(below / np.arange(1, correct + 1))) if correct else 0.0
    return min(1.0, pure + 2 * canaries * delta * worst)


def gaussian_bound(scores: Floats, included: Bools, delta: float, confidence: float = 0.95) -> float:
    """Return epsilon at `delta` for the least mu of Gaussian differential privacy that the attacker's errors allow.

    Nasr et al. 2023: with false positive rate a and false negative rate b, mu >= Q(1 - a) - Q(b), Q the normal
    quantile. Rates a and b are bounded by Clopper and Pearson's method over the canaries, and both, at all thresholds,
    share the error. The result is stronger than `lower_bound`, but a bound only if the mechanism is Gaussian and the
    canaries do not disturb each other.
    """
    error, mu = (1 - confidence) / (2 * len(_LEVELS)), 0.0
    absent, present = scores[~included], scores[included]
    for threshold in np.quantile(scores, _LEVELS):
        a = _at_most(int((absent > threshold).sum()), len(absent), error)
        b = _at_most(int((present <= threshold).sum()), len(present), error)
        mu = max(mu, float(scipy.stats.norm.ppf(1 - a) - scipy.stats.norm.ppf(b)))
    return epsilon_of_mu(mu, delta)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return epsilon at `delta` of mu-Gaussian differential privacy (Dong, Roth and Su 2022, Corollary 2.13)."""

    def excess(epsilon: float) -> float:
        """Return how far the Gaussian mechanism's delta at an epsilon is above `delta`."""
        tail = epsilon + float(scipy.stats.norm.logcdf(-epsilon / mu - mu / 2))
        return float(scipy.stats.norm.cdf(-epsilon / mu + mu / 2)) - math.exp(tail) - delta

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    return float(scipy.optimize.brentq(excess, 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1))


def _at_most(count: int, of: int, error: float) -> float:
    """Return the upper Clopper-Pearson bound on a rate."""
    return 1.0 if count == of else float(scipy.stats.beta.ppf(1 - error, count + 1, of - count))


@lru_cache(maxsize=64)
def ideal_bound(claimed: float, canaries: int, delta: float, confidence: float = 0.95,
                neighbours: Neighbours = "add-or-remove") -> float:
    """Return the bound of an ideal attacker whose guesses are right as often as expected, if the claim were exact.

    The mechanism is taken for a Gaussian one that has epsilon `claimed` at `delta`: mu-Gaussian differential privacy,
    under which the logarithm of the likelihood ratio is N(+-mu^2 / 2, mu^2) for a record that is in or out. Of two
    records of which one is in, the ratio is that of 2 mu at most. A bound far below this one says that the attack was
    weak, not that the mechanism is private.
    """
    mu = mu_of_epsilon(claimed, delta) * (2 if neighbours == "replace" else 1)
    error, best = (1 - confidence) / len(SHARES), 0.0
    for share in SHARES:
        guesses = math.ceil(share * canaries)
        correct = math.floor(guesses * _right(mu, share))
        best = max(best, epsilon_from_guesses(canaries, guesses, correct, delta, error, neighbours))
    return best


def _right(mu: float, share: float) -> float:
    """Return how often the ideal attacker is right on the share of the canaries about which it is surest."""
    if mu <= 0 or not math.isfinite(mu):
        return 0.5 if mu <= 0 else 1.0

    def surer(threshold: float) -> tuple[float, float]:
        """Return how likely a log ratio is beyond a threshold, on the right side and on the wrong one."""
        return float(scipy.stats.norm.sf(threshold / mu - mu / 2)), float(scipy.stats.norm.sf(threshold / mu + mu / 2))

    threshold = scipy.optimize.brentq(lambda t: sum(surer(t)) - share, 0.0, mu**2 + 10 * mu)
    return surer(float(threshold))[0] / share


def mu_of_epsilon(epsilon: float, delta: float) -> float:
    """Return mu of the Gaussian differential privacy that has this epsilon at `delta`: the inverse of `epsilon_of_mu`.

    It is infinite for an infinite epsilon.
    """
    if epsilon <= 0 or not math.isfinite(epsilon):
        return max(epsilon, 0.0)
    high = 1.0
    while epsilon_of_mu(high, delta) < epsilon:
        high *= 2
    return float(scipy.optimize.brentq(lambda mu: epsilon_of_mu(mu, delta) - epsilon, 0.0, high))


def gaussian(mu: float) -> Least:
    """Return the trade-off curve of mu-Gaussian differential privacy.

    Args:
        mu: Distance of the two means in standard deviations, from 0.

    Examples:
        >>> round(gaussian(1.0)(0.5), 4)
        0.1587
    """
    return lambda probability: float(ndtr(ndtri(probability) - mu))


def least_total(canaries: int, guesses: int, correct: int, error: float, least: Least) -> float:
    """Return the least total of all probabilities where so many right guesses have the probability `error`.

    Above 1 it refutes the curve, at a confidence of 1 - `error`. It stops as soon as it is above 1.

    Args:
        canaries: How many canaries there are, m.
        guesses: On how many of them the attacker guesses, r.
        correct: How many guesses were right, v.
        error: Probability of at least v right guesses.
        least: The curve, with regard to one canary more or less.

    Examples:
        >>> least_total(1000, 200, 160, 0.05, gaussian(0.1)) > 1
        True
        >>> least_total(1000, 200, 160, 0.05, gaussian(1.0)) < 1
        True
    """
    right, wrong = error * correct / canaries, error * (guesses - correct) / canaries
    for number in range(correct - 1, -1, -1):
        needed = least(right)
        if needed <= wrong or right + wrong > guesses / canaries:  # nothing more is needed for any lower number
            break
        right += number / (guesses - number) * (needed - wrong)
        wrong = needed
    return (right + wrong) * canaries / guesses


def mu_from_guesses(canaries: int, guesses: int, correct: int, error: float) -> float:
    """Return the largest mu whose Gaussian curve so many right guesses refute; 0 if they refute none.

    The arguments are those of `least_total`; `error` is the probability of a false alarm.
    """

    def excess(mu: float) -> float:
        """Return how far the total for a curve is above 1."""
        return least_total(canaries, guesses, correct, error, gaussian(mu)) - 1

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return max(float(scipy.optimize.brentq(excess, 0.0, high, xtol=_STRAYS)) - _STRAYS, 0.0)


def curve_bound(scores: Floats, included: Bools, delta: float, confidence: float = 0.95,
                neighbours: Neighbours = "add-or-remove") -> Bound:
    """Return the bound on epsilon at `delta` by the Gaussian curve, from `SHARES`.

    It is stronger than `lower_bound`, and a bound if the mechanism's curve is that of a Gaussian mechanism. Unlike
    `gaussian_bound` it holds although canaries disturb each other.

    Args:
        scores: Positive for "in", `[m]`; those largest in size are guessed on.
        included: The truth, `[m]`.
        delta: Delta of the epsilon.
        confidence: With which the bound holds.
        neighbours: With "replace" a canary is a pair of records of which one is in, which is twice the mu.
    """
    pair = 2 if neighbours == "replace" else 1
    return _best_share(scores, included, confidence, partial(_epsilon, delta=delta, pair=pair))


def _epsilon(canaries: int, guesses: int, correct: int, error: float, delta: float, pair: int) -> float:
    """Return epsilon at `delta` for the largest mu that is refuted, of a `pair` of records or one."""
    return epsilon_of_mu(mu_from_guesses(canaries, guesses, correct, error) / pair, delta)
