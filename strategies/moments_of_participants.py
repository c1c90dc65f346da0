"""Moments that protect participants: each one's sums are clipped as one vector, whatever its number of records."""

from __future__ import annotations

from collections.abc import Sequence

from fedfair.mechanisms.clipping import ClipRule, Flat
from fedfair.node.moment_sums import send_masked_participant_moments, send_participant_moments
from strategies.moments import Moments


class MomentsOfParticipants(Moments):
    """Moments of clients that are participants: neighbouring data sets differ by one client with all its records.

    The sums of a participant, svec(S) and V together, are scaled by min(1, C / |sums|), with the run's `clip_norm` C;
    the noise is relative to C. A participant of n records of norm 1 has sums of norm n sqrt(2) at most, so C says how
    many records of one participant count in full.
    """

    needs = "features of bounded norm, model linear, and each client a participant"
    protects = "participant"
    exchange = send_participant_moments
    masked_exchange = send_masked_participant_moments

    def rule(self) -> ClipRule:
        """Return the norm of one participant's sums."""
        return Flat(self.training.clip_norm)

    def expected_batch(self, clients: Sequence[int] | None = None) -> float:
        """Return the number of participants."""
        return len(self.population.sizes)
