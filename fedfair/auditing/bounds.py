"""From the guesses of an attacker to a lower bound on epsilon.

Each of m canaries is in the training data with probability 1/2, independently. An attacker who sees what was released
scores every canary, positive where it thinks that the canary is in, and guesses on the canaries it is surest of. Under
(epsilon, delta) differential privacy it cannot be right much more often than a biased coin; if it is, epsilon must be
larger (Steinke, Nasr and Jagielski 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy

_SHARES = (1 / 50, 1 / 20, 1 / 10, 1 / 2)  # of the canaries that are guessed on, fixed before anything is seen
_LEVELS = np.arange(0.05, 1, 0.05)  # quantiles of the scores at which `gaussian_bound` looks
_GRID = np.linspace(0, 25, 51)  # of epsilon, on which a first sign is looked for

Neighbours = Literal["add-or-remove", "replace"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Bound:
    """With probability `confidence`, the mechanism is not (e, delta)-private for any e below `epsilon`.

    `correct` of `guesses` were right, on `canaries` in all.
    """

    epsilon: float
    canaries: int
    guesses: int
    correct: int
    confidence: float


def lower_bound(scores: Floats, included: Bools, delta: float, confidence: float = 0.95,
                neighbours: Neighbours = "add-or-remove") -> Bound:
    """The largest of the bounds from guessing on several shares of the canaries, each at a quarter of the error.

    `scores` `[m]` are positive for "in"; the largest in size are guessed on. `included` `[m]` is the truth. With
    "replace", a canary is a pair of records of which one is in, the first if `included`; the bound is still on the
    epsilon of adding or removing one.
    """
    order = np.argsort(-np.abs(scores), kind="stable")
    right = ((scores > 0) == included)[order]
    error = (1 - confidence) / len(_SHARES)
    bounds = []
    for share in _SHARES:
        guesses = math.ceil(share * len(scores))
        correct = int(right[:guesses].sum())
        found = epsilon_from_guesses(len(scores), guesses, correct, delta, error, neighbours)
        bounds.append(Bound(found, len(scores), guesses, correct, confidence))
    return max(bounds, key=lambda bound: bound.epsilon)


def epsilon_from_guesses(canaries: int, guesses: int, correct: int, delta: float, error: float,
                         neighbours: Neighbours = "add-or-remove") -> float:
    """The largest epsilon under which so many correct guesses would have a probability of at most `error`.

    Replacing a record is removing one and adding one: (2 epsilon, (1 + e^epsilon) delta).
    """

    def excess(epsilon: float) -> float:
        """How far the p-value of a claim lies above the error that is allowed: at 0 or more the claim stands."""
        if neighbours == "replace":
            return p_value(canaries, guesses, correct, 2 * epsilon, (1 + math.exp(epsilon)) * delta) - error
        return p_value(canaries, guesses, correct, epsilon, delta) - error

    found = np.array([excess(epsilon) >= 0 for epsilon in _GRID])
    if found[0]:
        return 0.0
    if not found.any():
        return float(_GRID[-1])
    first = int(found.argmax())
    return float(scipy.optimize.brentq(excess, _GRID[first - 1], _GRID[first]))


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """A bound on the probability of at least `correct` right guesses under (epsilon, delta) differential privacy.

    Steinke et al. 2023, Theorem 5.2: P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i, with W binomial of r guesses at
    e^epsilon / (1 + e^epsilon), v of them correct, m canaries.
    """
    coin = 1 / (1 + math.exp(-epsilon))
    pure = float(scipy.stats.binom.sf(correct - 1, guesses, coin))
    below = np.cumsum(scipy.stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, coin))
    worst = float(np.max(below / np.arange(1, correct + 1))) if correct else 0.0
    return min(1.0, pure + 2 * canaries * delta * worst)


def gaussian_bound(scores: Floats, included: Bools, delta: float, confidence: float = 0.95) -> float:
    """Epsilon at `delta` of the least mu of Gaussian differential privacy that the attacker's errors allow.

    Nasr et al. 2023: with false positive rate a and false negative rate b, mu >= Q(1 - a) - Q(b), Q the normal
    quantile; a and b by Clopper and Pearson over the canaries, the error shared among both and all thresholds. Stronger
    than `lower_bound`, but a bound only if the mechanism is Gaussian and the canaries do not disturb each other.
    """
    error, mu = (1 - confidence) / (2 * len(_LEVELS)), 0.0
    absent, present = scores[~included], scores[included]
    for threshold in np.quantile(scores, _LEVELS):
        a = _at_most(int((absent > threshold).sum()), len(absent), error)
        b = _at_most(int((present <= threshold).sum()), len(present), error)
        mu = max(mu, float(scipy.stats.norm.ppf(1 - a) - scipy.stats.norm.ppf(b)))
    return epsilon_of_mu(mu, delta)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Epsilon at `delta` of mu-Gaussian differential privacy (Dong, Roth and Su 2022, Corollary 2.13)."""

    def excess(epsilon: float) -> float:
        """How far the Gaussian mechanism's delta at an epsilon lies above `delta`."""
        tail = epsilon + float(scipy.stats.norm.logcdf(-epsilon / mu - mu / 2))
        return float(scipy.stats.norm.cdf(-epsilon / mu + mu / 2)) - math.exp(tail) - delta

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    return float(scipy.optimize.brentq(excess, 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1))


def _at_most(found: int, of: int, error: float) -> float:
    """The upper Clopper-Pearson bound on a rate."""
    return 1.0 if found == of else float(scipy.stats.beta.ppf(1 - error, found + 1, of - found))
