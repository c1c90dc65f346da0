"""One release about a record, as an accountant sees it."""

from __future__ import annotations

import math
from typing import NamedTuple


class Release(NamedTuple):
    """A Gaussian release on a Poisson sample: the sampling rate and the noise in units of the sensitivity."""

    rate: float
    multiplier: float


def refuse_impossible(release: Release) -> None:
    """Raise `ValueError` unless the rate is from 0 to 1 and the multiplier at least 0; nan would cost nothing."""
    if not (0 <= release.rate <= 1 and release.multiplier >= 0):
        raise ValueError(f"a release has the sampling rate {release.rate} and the noise multiplier "
                         f"{release.multiplier}: take a rate from 0 to 1, and a multiplier of 0 or more")


def joint_multiplier(gradient: float, counts: float | None) -> float:
    """The multiplier of two Gaussian releases on one batch together: `(s^-2 + s1^-2)^(-1/2)`; 0 if either is 0."""
    if counts is None or gradient == 0 or counts == 0:
        return gradient if counts is None else min(gradient, counts)
    return 1 / math.hypot(1 / gradient, 1 / counts)
