"""A limit on epsilon that releases stay within although whoever asks for them sees the earlier ones first.

A composed epsilon holds for releases that were fixed in advance. Here one side of (epsilon, delta) is checked before
each release, and the next one, or whether there is one, may depend on all that was seen. Two checks share delta:

- All releases are of the kind of the first, which was chosen before anything was seen. Then only their number is
  chosen on the way. A run that stops early is post-processing of one that takes all steps that the limit allows, so the
  composed epsilon at delta / 2 holds for all ends of this sort together.
- Anything else: an odometer's reading at delta / 2 (`odometer.reading`). With probability 1 - delta / 2 the privacy
  loss never exceeded it, so ends of this sort add at most delta / 2.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedfair.accounting.composition import epsilon
from fedfair.accounting.events import Release
from fedfair.accounting.odometer import reading


def spent(releases: Mapping[Release, int], delta: float) -> float:
    """Return the least limit that these releases stay within.

    Args:
        releases: How often each release was made; the order does not matter.
        delta: Delta of the limit, strictly between 0 and 1.

    Raises:
        ValueError: For an impossible release.
    """
    adaptive = reading(releases, delta / 2)
    return min(adaptive, epsilon(releases, delta / 2)) if len(releases) == 1 else adaptive


def stays_within(releases: Mapping[Release, int], limit: float, delta: float) -> bool:
    """Say whether releases stay within a limit on epsilon; the cheap check comes first.

    Args:
        releases: How often each release was made, with the one that is to come.
        limit: Largest epsilon.
        delta: Delta of the limit, strictly between 0 and 1.

    Raises:
        ValueError: For an impossible release.
    """
    return reading(releases, delta / 2) <= limit or spent(releases, delta) <= limit
