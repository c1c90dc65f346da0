"""Renyi differential privacy of composed releases: Mironov et al. 2019, by Google's dp-accounting."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS, compute_epsilon

from fedfair.accounting.knots import Floats, Mixture
from fedfair.accounting.release import Release

ORDERS: Floats = np.array(DEFAULT_RDP_ORDERS, dtype=float)
"""The orders over which an epsilon is minimised: 1.1 to 1024."""


def compose(mixtures: Sequence[Mixture], delta: float) -> float:
    """Epsilon at `delta` of all releases: the figures that the papers print."""
    total = sum((_composed(mixture) for mixture in mixtures), np.zeros(len(ORDERS)))
    return to_epsilon(ORDERS, total, delta)


def to_epsilon(orders: Floats, divergences: Floats, delta: float) -> float:
    """The smallest epsilon that Renyi divergences `[A]` at `orders` `[A]` give (Canonne et al. 2020)."""
    with _without_absl():
        return float(compute_epsilon(orders, divergences, delta)[0])


@lru_cache(maxsize=20_000)
def divergences(release: Release, orders: tuple[float, ...] = tuple(ORDERS)) -> Floats:
    """The Renyi divergences of one release at `orders`, in both directions of add-or-remove-one."""
    gaussian = dpa.GaussianDpEvent(release.multiplier)
    event = dpa.PoissonSampledDpEvent(release.rate, gaussian) if release.rate < 1 else gaussian
    with _without_absl():
        return np.array(RdpAccountant(list(orders)).compose(event).rdp)


def _composed(mixture: Mixture) -> Floats:
    """The divergences of a mixture's releases together, by the moments exp((order - 1) divergence) of its knots."""
    logs = np.array([divergences(Release(mixture.rate, float(knot))) for knot in mixture.knots]) * (ORDERS - 1)
    lower, upper = logs[mixture.lower], logs[mixture.upper]
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.log(mixture.weight)[:, None], np.log1p(-mixture.weight)[:, None]
        moments = np.where(mixture.weight[:, None] < 1, np.logaddexp(weight[0] + lower, weight[1] + upper), lower)
    return np.asarray(mixture.count @ moments / (ORDERS - 1))


@contextmanager
def _without_absl() -> Iterator[None]:
    """Keep dp-accounting from warning, and from configuring the process's logging in order to warn.

    It warns where it leaves an order out, which only makes epsilon larger.
    """
    root, absl, null = logging.getLogger(), logging.getLogger("absl"), logging.NullHandler()
    level = absl.level
    root.addHandler(null)
    absl.setLevel(logging.ERROR)
    try:
        yield
    finally:
        absl.setLevel(level)
        root.removeHandler(null)
