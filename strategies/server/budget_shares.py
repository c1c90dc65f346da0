"""How an epsilon and a delta are divided among releases: every share, with its reason. Change a division here.

Three names, for what they say: `epsilon` is what any record is kept within, `target_epsilon` what training records are
asked besides the kinds of columns, `figures_epsilon` what the records of a held-out part are asked besides. A record is
in one part of the split, so the last two do not add up.

    epsilon, of `fedfair fit`    KINDS_SHARE for the kinds of columns and the sizes of classes, the rest for each part
                                 of the split
      target_epsilon             PREPROCESSING_SHARE for ranges and categories, the rest for sums and gradients
      FIGURES_SHARE              where nothing is held out: for figures of training records, before target_epsilon
      figures_epsilon, by part   FRONT_SHARES for classifiers of the front, the rest for the run's model; of that
                                 SITES_SHARE for its figures by site
    delta                        CATEGORIES_SHARE for categories of single records, the rest for what is composed

Shares named "of mu^2" add up exactly: Gaussian releases of all records compose by mu^2, mu = 1 / noise multiplier
(Dong, Roth and Su 2022), and a release with a share w has the noise multiplier m / sqrt(w). What is divided equally has
no number here: the rounds of a run, the logistic steps after moments, the steps of a trial, and what is left of
`group_epsilon` over the steps that are left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from fedfair.accounting.events import LEFT_OUT

Split = Literal["valid", "test", "left-out"]
SPLITS: tuple[Split, ...] = ("valid", "test")
"""Held-out parts: a record is in one of them, so that each has a budget of its own."""

KINDS_SHARE = 0.02
"""Share of mu^2 for the kinds of columns and the sizes of classes: counts over all records stand out of much noise."""

PREPROCESSING_SHARE = 0.25
"""Share of target_epsilon for ranges and categories, about 6 % of what Gaussian releases may spend, mu^2."""

CATEGORIES_SHARE = 0.1
"""Share of delta for the categories of single records."""

LISTED_SHARE = 0.5
"""Share of that by which such a category may be listed.

The other half makes up for what the runs in which none is listed are then divided by.
"""

COUNT_NOISE_RATIO = 10.0
"""Noise of counts on a batch, in units of that of its gradients: counts then take about 1 % of the step's mu^2."""

FRONT_SHARES: Mapping[Split, float] = {"valid": 1.0, "test": 0.4}
"""Share of each part's mu^2 for figures of the front; the rest is for those of the run's model.

A point of the front is chosen on the validation part, and nothing else is asked of it.
"""

FIGURES_SHARE = 0.1
"""Share of mu^2 for figures of training records, where nothing is held out (`fedfair.moments.leave_one_out`).

On all records, counts with ten times the variance of noise still tell more than those of a fifth of them.
"""

LEFT_OUT_SHARES: Mapping[Split, float] = {LEFT_OUT: 0.5}
"""Share of that for figures of the front; the rest is for those of the run's model, whose noise is its own.

So a point that noise made look good when it was chosen does not look so in its figures.
"""

FRONT_SHARES_AFTER_SELECTION: Mapping[Split, float] = {**FRONT_SHARES, "valid": 0.25}
"""The same after a private selection, whose noisy score has the rest of the validation part."""

SITES_SHARE = 0.5
"""Share of what figures of the model may spend that those by site get, where there are sites.

Figures by group would follow from counts by site and group too, but with sqrt(S) times the noise at S sites. With a
release of their own they have sqrt(2) times as much as without sites, however many there are.
"""


def with_share(multiplier: float, share: float) -> float:
    """Return the noise multiplier of a release that has a share of a budget.

    Args:
        multiplier: Noise multiplier of a release that has all of it.
        share: Share of mu^2, above 0.
    """
    return multiplier / math.sqrt(share)
