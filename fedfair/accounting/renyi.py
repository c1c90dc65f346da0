"""Renyi differential privacy of composed releases: Mironov et al. 2019, by Google's dp-accounting."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
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
    return to_epsilon(ORDERS, total(mixtures), delta)


def total(mixtures: Sequence[Mixture], orders: tuple[float, ...] = tuple(ORDERS)) -> Floats:
    """The Renyi divergences of all releases together at `orders`."""
    return np.asarray(np.sum([_composed(mixture, orders) for mixture in mixtures], axis=0))


def to_epsilon(orders: Floats, divergences: Floats, delta: float) -> float:
    """The smallest epsilon that Renyi divergences `[A]` at `orders` `[A]` give (Canonne et al. 2020)."""
    with _without_absl():
        return float(compute_epsilon(orders, divergences, delta)[0])


@lru_cache(maxsize=50_000)
def divergences(release: Release, orders: tuple[float, ...] = tuple(ORDERS)) -> Floats:
    """The Renyi divergences of one release at `orders`, in both directions of add-or-remove-one."""
    gaussian = dpa.GaussianDpEvent(release.multiplier)
    event = dpa.PoissonSampledDpEvent(release.rate, gaussian) if release.rate < 1 else gaussian
    with _without_absl():
        return np.array(RdpAccountant(list(orders)).compose(event).rdp)


def _composed(mixture: Mixture, orders: tuple[float, ...]) -> Floats:
    """The divergences of a mixture's releases together, by the moments exp((order - 1) divergence) of its knots."""
    less_one = np.array(orders) - 1
    logs = np.array([divergences(Release(mixture.rate, float(knot)), orders) for knot in mixture.knots]) * less_one
    lower, upper = logs[mixture.lower], logs[mixture.upper]
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.log(mixture.weight)[:, None], np.log1p(-mixture.weight)[:, None]
        moments = np.where(mixture.weight[:, None] < 1, np.logaddexp(weight[0] + lower, weight[1] + upper), lower)
    return np.asarray(mixture.times @ moments / less_one)


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
