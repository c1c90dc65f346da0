"""From the guesses of an attacker to a lower bound on epsilon, by the whole trade-off curve of a mechanism in one run.

Each of m canaries is in the training data with probability 1/2, and an attacker guesses on r of them. A trade-off curve
says how unlikely an event of probability p can be on a neighbouring data set: `least(p)` at least (f-differential
privacy; Dong, Roth and Su 2022). Let p_i be the probability of exactly i right guesses. Flip one canary on which the
guess is right, in a case with at least i + 1 right guesses: then that guess is wrong, and at least i of the others are
right. Averaged over all canaries, with a convex `least`,

    sum_{j >= i} (r - j) p_j / m  >=  least( sum_{j >= i + 1} j p_j / m )        for every i.

If v right guesses or more had the probability `error`, these inequalities give, from i = v - 1 down to 0, the least
that all p_i together can be. A sum above 1 is a contradiction: so many right guesses are less likely than `error`
(Mahloujifar, Melis and Chaudhuri 2025, Algorithm 3). Canaries may disturb each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import scipy
from scipy.special import ndtr, ndtri

from fedfair.auditing.bounds import Bools, Bound, Floats, Neighbours, best_share, epsilon_of_mu

Least = Callable[[float], float]
"""From the probability of an event on one data set to the least that it can be on a neighbour; convex, from 0 to 1."""

_STRAYS = 1e-9  # of mu, by which a root may be off


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
    """Return the bound on epsilon at `delta` by the Gaussian curve, from the shares of `fedfair.auditing.bounds`.

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
    return best_share(scores, included, confidence, partial(_epsilon, delta=delta, pair=pair))


def _epsilon(canaries: int, guesses: int, correct: int, error: float, delta: float, pair: int) -> float:
    """Return epsilon at `delta` for the largest mu that is refuted, of a `pair` of records or one."""
    return epsilon_of_mu(mu_from_guesses(canaries, guesses, correct, error) / pair, delta)
