"""A run's front: what follows from all that a run of moments released, once its last round is over.

Classifiers are fitted to features that some record has, then given weights for all; logistic regression takes the
weights that all releases tell together; columns with a direction are made to keep it. Beside them stand what noise does
to them, and how training records would be decided without themselves.
Nothing here reads a record or costs any privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from fedfair.datasets.features.encoding import Encoding
from fedfair.mechanisms.randomness import Source
from fedfair.moments.filled_bins import Filled
from fedfair.moments.front import Front, Point, front
from fedfair.moments.heads import Constraint, Head, directions
from fedfair.moments.leave_one_out import LeftOut, left_out
from fedfair.moments.logistic import Course
from fedfair.moments.monotone import directions_of, made_monotone
from fedfair.moments.posterior import Posterior, posterior
from fedfair.moments.refits import refits
from fedfair.moments.release import Moments


@dataclass(frozen=True)
class Fitting:
    """What a run's classifiers are fitted by: released sums, and settings that are public.

    Attributes:
        released: Moments of the k features that some record has.
        course: The logistic regression, as it was trained; without steps for a front that has none.
        bins: Which features these are, and what the weights of the others are.
        encoding: How columns became features.
        constraint: What tau makes equal.
        favourable: Number of the favourable class, or None.
    """

    released: Moments
    course: Course
    bins: Filled
    encoding: Encoding
    constraint: Constraint
    favourable: int | None

    def front(self, wanted: Sequence[Point], trained: Head | None, monotone: Sequence[str], draws: Source | None
              ) -> Front:
        """Return the classifiers of some settings, with the weights of all features.

        Args:
            wanted: The settings.
            trained: The logistic regression, of the features that are fitted to; None for none.
            monotone: Columns whose number the score of the favourable class, one of two, rises or falls with.
            draws: Where random numbers come from that say what noise does to the classifiers; None for not to say it.
        """
        counted = self.bins.records
        if trained is not None and counted is not None:
            trained = trained._replace(weights=self._posterior.of_classes)
        fitted = front(self.released, wanted, self.constraint, self.favourable, trained)
        weights = self.bins.ending @ fitted.weights
        told = None if draws is None else refits(
            self.released, self.course, self._posterior, fitted.points, fitted.weights, self.constraint,
            self.favourable, self.bins, self.encoding, draws)
        if monotone:
            assert self.favourable is not None
            numbers = counted.numbers if counted else torch.ones(weights.shape[1] - 1, dtype=torch.float64)
            weights = made_monotone(weights, directions_of(monotone), self.encoding, numbers, self.favourable)
        return fitted._replace(weights=weights, refits=told)

    def left_out(self, made: Front) -> LeftOut:
        """Return how training records would be decided by the front's classifiers, had they not trained them.

        Args:
            made: The front, with the weights of all features.
        """
        constrained = any(point.tau != 1 for point in made.points)
        across = directions(self.released, self.constraint, self.favourable) if constrained else None
        taus = [None if point.head == "constant" else point.tau for point in made.points]
        return left_out(self.course, self._posterior, taus, made.weights, across, self.bins)

    @cached_property
    def _posterior(self) -> Posterior:
        """The weights of logistic regression that all releases tell, where features are counted."""
        return posterior(self.course, self.released, self.bins, self.encoding)
