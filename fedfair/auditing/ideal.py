"""What an ideal attacker would find: the measure of how strong an attack was."""

from __future__ import annotations

import math
from functools import lru_cache

import scipy

from fedfair.auditing.bounds import SHARES, Neighbours, epsilon_from_guesses, epsilon_of_mu


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
