"""One release about a record, as an accountant sees it."""

from __future__ import annotations

import math
from typing import NamedTuple


class Release(NamedTuple):
    """A Gaussian release on a Poisson sample: the sampling rate and the noise in units of the sensitivity."""

    rate: float
    multiplier: float


def joint_multiplier(gradient: float, counts: float | None) -> float:
    """The multiplier of two Gaussian releases on one batch together: `(s^-2 + s1^-2)^(-1/2)`; 0 if either is 0."""
    if counts is None or gradient == 0 or counts == 0:
        return gradient if counts is None else min(gradient, counts)
    return 1 / math.hypot(1 / gradient, 1 / counts)
