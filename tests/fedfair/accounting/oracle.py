"""Slow and obvious: divergences in closed form, and composition by convolution and by dp-accounting itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, reduce

import dp_accounting as dpa
import mpmath
import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant

from fedfair.accounting import Release
from fedfair.accounting.fourier import Loss
from fedfair.accounting.knots import Floats
from fedfair.accounting.renyi import ORDERS, divergences, to_epsilon

mpmath.mp.dps = 50  # at rates near 1 the terms of these differences agree in more digits than a float has


def gaussian(multiplier: float, loss: mpmath.mpf) -> mpmath.mpf:
    """Return the hockey-stick divergence of N(1, s^2) from N(0, s^2) (Balle and Wang 2018)."""
    mu = 1 / mpmath.mpf(multiplier)
    return mpmath.ncdf(mu / 2 - loss / mu) - mpmath.exp(loss) * mpmath.ncdf(-mu / 2 - loss / mu)


def hockey_stick(rate: float, multiplier: float, loss: float, removal: bool) -> float:
    """Return the same on a Poisson sample, when a record is removed or added (Zhu et al. 2022)."""
    rate, loss = mpmath.mpf(rate), mpmath.mpf(loss)
    if removal:
        return float(_removal(rate, multiplier, loss))
    return float(1 - mpmath.exp(loss) + mpmath.exp(loss) * _removal(rate, multiplier, -loss))


def _removal(rate: mpmath.mpf, multiplier: float, loss: mpmath.mpf) -> mpmath.mpf:
    """When a record is removed."""
    if mpmath.exp(loss) <= 1 - rate:
        return 1 - mpmath.exp(loss)
    return rate * gaussian(multiplier, mpmath.log((mpmath.exp(loss) - (1 - rate)) / rate))


def of_losses(loss: Loss, interval: float, at: float) -> float:
    """Return the hockey-stick divergence of a discretised loss."""
    values = interval * (loss.first + np.arange(len(loss.mass)))
    return float(loss.mass @ np.maximum(-np.expm1(at - values), 0)) + loss.infinite


@lru_cache(maxsize=4)
def google_divergences(rate: float, multiplier: float) -> Floats:
    """dp-accounting's Renyi divergences of one release at `ORDERS`; infinite where it could not find one."""
    event = dpa.GaussianDpEvent(multiplier)
    return np.array(RdpAccountant(list(ORDERS)).compose(
        dpa.PoissonSampledDpEvent(rate, event) if rate < 1 else event).rdp)


@lru_cache(maxsize=4)
def opacus_divergences(rate: float, multiplier: float) -> Floats:
    """Opacus's Renyi divergences of one release at `ORDERS`."""
    from opacus.accountants.analysis.rdp import compute_rdp  # here: importing Opacus takes seconds

    return np.asarray(compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=list(ORDERS)))


def direct(releases: Mapping[Release, int], accountant: str = "rdp", delta: float = 1e-6, pessimistic: bool = True,
           interval: float = 1e-4) -> float:
    """Epsilon of one release after the other, nothing rounded: by divergences, or by dp-accounting's loss
    distributions.
    """
    if accountant == "rdp":
        total_divergences = sum(count * divergences(release) for release, count in releases.items())
        return to_epsilon(ORDERS, np.asarray(total_divergences), delta)
    losses = _losses(tuple(releases.items()), pessimistic, interval)
    return float(losses.get_epsilon_for_delta(delta))


@lru_cache(maxsize=2)
def _losses(releases: tuple[tuple[Release, int], ...], pessimistic: bool, interval: float
            ) -> PrivacyLossDistribution:
    """dp-accounting's loss distribution of the releases; kept for further deltas."""
    parts = (from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=interval,
                                     pessimistic_estimate=pessimistic).self_compose(count)
             for (rate, multiplier), count in releases)
    return reduce(PrivacyLossDistribution.compose, parts)
