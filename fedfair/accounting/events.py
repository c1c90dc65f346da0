"""Events: what one step of a method releases about the records of each group, and what each record is charged.

Observers of a run, and how much of the noise protects a record from each.

- "model": anyone who gets the final model or an intermediate one, and takes no part in the training.
- "server": follows the protocol and looks at everything that it receives.
- "client": another client, which sees every model and knows the noise that it added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, get_args

from fedfair.mechanisms.noise import Trust, client_share, sum_share

Unit = Literal["record", "participant"]
"""The unit by which neighbouring data sets differ, and which an epsilon protects."""

PUBLIC: dict[Unit | Literal["row"], str] = {
    "record": "names of groups and classes, numbers of records by group and client, expected batch size",
    "row": "names of groups and classes, number of rows",
    "participant": "names of groups and classes, number of participants, expected number of them in a round",
}
"""What is taken as public, by the unit that is protected: of rows of a table, of whose parts no size is told."""


class Release(NamedTuple):
    """A Gaussian release on a Poisson sample, as an accountant sees it.

    Attributes:
        rate: Sampling rate of the record, from 0 to 1.
        multiplier: Noise multiplier: the standard deviation of the noise in units of the sensitivity, at least 0.

    Examples:
        >>> from fedfair.accounting.composition import epsilon
        >>> round(epsilon({Release(rate=0.01, multiplier=1.1): 1000}, delta=1e-5, accountant="rdp"), 2)
        1.71
    """

    rate: float
    multiplier: float


class Preprocessed(NamedTuple):
    """One release about all records, from which preprocessing learned ranges and categories.

    Attributes:
        multiplier: Noise multiplier of the release.
        delta: Probability, a part of delta, that the category of a single record is listed.

    Examples:
        >>> one = Preprocessed(multiplier=3.0, delta=1e-7)
        >>> one.with_another(Preprocessed(multiplier=4.0, delta=1e-7))
        Preprocessed(multiplier=2.4, delta=2e-07)
    """

    multiplier: float
    delta: float

    def with_another(self, other: Preprocessed) -> Preprocessed:
        """Return what both releases are charged together.

        Args:
            other: A release about the same records.
        """
        return Preprocessed((self.multiplier**-2 + other.multiplier**-2) ** -0.5, self.delta + other.delta)


@dataclass(frozen=True)
class Event:
    """One sampled step: a noisy gradient sum and, on the same batch, possibly noisy counts.

    Its batch is a Poisson sample; or that of one of `bins` steps into which the records of an epoch were put. The steps
    of such an epoch are charged together (`fedfair.accounting.allocation`), by the least noise that any of them has;
    what was certain is then what was fixed in advance, as an epoch is charged before its first step.

    Only a round's plan makes events (`fedfair.protocol.round.Round.event`), so that noise and charge cannot differ.

    Counts of the same batch that choose the step's bounds say something of who is in the batch: given them, a record
    is in it with another probability than its sampling rate. The cost at the chosen bounds is therefore no divergence
    of the step, and an odometer or a filter must not add it up. The cost at the least noise that was certain is one:
    whatever the counts are, the gradient sum is a noisier version of a sum with that noise, and sum and counts together
    are one Gaussian on one Poisson sample.

    All multipliers are the planned ones. Raises what `refuse_impossible` does.

    Args:
        rates: Sampling rates by group, or the most that they could be, fixed in advance, `[K]`.
        multipliers: By group, the gradient noise in units of the most that any record can add, fixed in advance, `[K]`.
        spent_multipliers: By group, the same in units of the most that a record of the group can add under the bounds
            of this step, which may depend on earlier outputs, `[K]`.
        count_multiplier: The noise of the counts in units of their sensitivity, or None.
        client: The only client whose records are touched, or None for all.
        noise_present: The part of the noise's standard deviation that really was in the sums, below 1 if clients
            dropped out with their shares of it (see `noise_present`).
        certain_multipliers: The least that `spent_multipliers` were certain to be before the step began, `[K]`, or None
            if they were known then.
        spent_rates: The sampling rates of this step, where they followed earlier outputs, at most `rates`, `[K]`; None
            if they are `rates`.
        bins: Number of steps of an epoch, into each of which a record is put with the same probability; None for a
            Poisson sample. Rates are then one over it, or 0 for a group without records.

    Examples:
        >>> event = Event((0.01, 0.02), multipliers=(1.5, 1.5), spent_multipliers=(1.5, 7.5), count_multiplier=10.0)
        >>> for release in (event.guaranteed(1), event.spent(1), event.certain(1), event.in_advance().spent(1)):
        ...     print(release.rate, round(release.multiplier, 3))
        0.02 1.483
        0.02 6.0
        0.02 6.0
        0.02 1.483
        >>> event.separate(1)
        (Release(rate=0.02, multiplier=1.5), Release(rate=0.02, multiplier=10.0))
    """

    rates: tuple[float, ...]
    multipliers: tuple[float, ...]
    spent_multipliers: tuple[float, ...]
    count_multiplier: float | None = None
    client: int | None = None
    noise_present: float = 1.0
    certain_multipliers: tuple[float, ...] | None = None
    spent_rates: tuple[float, ...] | None = None
    bins: int | None = None

    def __post_init__(self) -> None:
        if self.bins is not None and (self.spent_rates or {*self.rates} - {0.0, 1 / self.bins}):
            raise ValueError(f"an event of balls in {self.bins} bins has the sampling rates "
                             f"{self.spent_rates or self.rates}: each is 1/{self.bins}, or 0 without records")
        if any(spent > most for spent, most in zip(self.spent_rates or self.rates, self.rates, strict=True)):
            raise ValueError(f"an event has the sampling rates {self.spent_rates}, but at most {self.rates} were fixed "
                             "in advance: take lower ones")
        for rate, *multipliers in zip(self.rates, self.multipliers, self.spent_multipliers,
                                      self.certain_multipliers or self.multipliers, strict=True):
            for multiplier in (*multipliers, self.count_multiplier or 0.0):
                refuse_impossible(Release(rate, multiplier))

    def guaranteed(self, group: int, noise: float | None = None) -> Release:
        """Return what a record of a group is charged whatever the bounds: one joint Gaussian on one Poisson sample.

        Args:
            group: Number of the group.
            noise: Part of the planned noise that an observer sees, in standard deviations; None for `noise_present`.
        """
        return self._release(group, self.rates, self.multipliers, noise)

    def spent(self, group: int, noise: float | None = None) -> Release:
        """Return what a record of a group is charged under the bounds of this step.

        Args:
            group: Number of the group.
            noise: Part of the planned noise that an observer sees, in standard deviations; None for `noise_present`.
        """
        return self._release(group, self.spent_rates or self.rates, self.spent_multipliers, noise)

    def certain(self, group: int) -> Release:
        """Return what a record of a group is charged by what was certain before this step, given the steps before.

        Args:
            group: Number of the group.
        """
        certain = self.spent_multipliers if self.certain_multipliers is None else self.certain_multipliers
        certain = certain if self.bins is None else self.multipliers
        return self._release(group, self.spent_rates or self.rates, certain, None)

    def in_advance(self, least: Sequence[float] | None = None) -> Event:
        """Return the event that charges every group what was certain whatever the bounds.

        Args:
            least: By group, noise multipliers that were also certain, of a budget by group for example, `[K]`, or None.
        """
        certain = self.multipliers if least is None else tuple(map(max, self.multipliers, least))
        return replace(self, spent_multipliers=certain, certain_multipliers=None, spent_rates=None)

    def separate(self, group: int) -> tuple[Release, ...]:
        """Return gradient and counts as two separately sampled events, as the papers compose them; for comparison.

        Args:
            group: Number of the group.
        """
        gradient = Release(self.rates[group], self.multipliers[group] * self.noise_present)
        if self.count_multiplier is None:
            return (gradient,)
        return gradient, Release(self.rates[group], self.count_multiplier * self.noise_present)

    def _release(self, group: int, rates: tuple[float, ...], multipliers: tuple[float, ...], noise: float | None
                 ) -> Release:
        """Return gradient and counts together."""
        seen = self.noise_present if noise is None else noise
        joint = joint_multiplier(multipliers[group], self.count_multiplier)
        return Release(rates[group], joint * seen if seen > 0 else 0.0)


class Noisy(Protocol):
    """Anything that has a sampling rate and a noise multiplier.

    Examples:
        >>> release: Noisy = Release(rate=0.01, multiplier=1.1)
        >>> release.rate, release.multiplier
        (0.01, 1.1)
    """

    @property
    def rate(self) -> float:
        """Sampling rate of the record."""

    @property
    def multiplier(self) -> float:
        """Noise multiplier."""


def refuse_impossible(release: Noisy) -> None:
    """Raise `ValueError` unless the rate is from 0 to 1 and the multiplier at least 0; nan would cost nothing.

    Args:
        release: The release to check.

    Examples:
        >>> refuse_impossible(Release(rate=0.01, multiplier=float("nan")))
        Traceback (most recent call last):
            ...
        ValueError: a release has the sampling rate 0.01 and the noise multiplier nan: take a rate from 0 to 1, ...
    """
    if not (0 <= release.rate <= 1 and release.multiplier >= 0):
        raise ValueError(f"a release has the sampling rate {release.rate} and the noise multiplier "
                         f"{release.multiplier}: take a rate from 0 to 1, and a multiplier of 0 or more")


def joint_multiplier(gradient: float, counts: float | None) -> float:
    """Return the multiplier of two Gaussian releases on one batch: `(s^-2 + s1^-2)^(-1/2)`; 0 if either is 0.

    Args:
        gradient: Noise multiplier of the gradient sum, s.
        counts: Noise multiplier of the counts, s1, or None without counts.

    Examples:
        >>> joint_multiplier(15.0, 20.0), joint_multiplier(15.0, None)
        (12.0, 15.0)
    """
    if counts is None or gradient == 0 or counts == 0:
        return gradient if counts is None else min(gradient, counts)
    return 1 / math.hypot(1 / gradient, 1 / counts)


def spent_multipliers(noise: float, bounds: Sequence[float]) -> tuple[float, ...]:
    """Return by group, `[K]`, the noise in units of what a record of the group can add.

    A noise of 0 stays 0, whatever the bounds, infinite ones included.

    Args:
        noise: Standard deviation of the noise in units of the largest bound.
        bounds: The most that a record of each group can add, `[K]`.

    Raises:
        ValueError: For noise around a sum that nothing bounds.

    Examples:
        >>> spent_multipliers(1.0, (0.5, 2.0))
        (4.0, 1.0)
    """
    largest = max(bounds)
    if noise and math.isinf(largest):
        raise ValueError(f"the bounds are {tuple(bounds)}: noise hides nothing in a sum without bounds, take finite "
                         "ones")
    return tuple(noise * largest / bound if noise else 0.0 for bound in bounds)


def noise_present(clients: int, missing: int) -> float:
    """Return the part of distributed noise, in standard deviations, that is left when shares are missing.

    That is sqrt((n - d) / n) without d of n equal shares.

    Args:
        clients: Number of clients that share the noise, n.
        missing: Number of clients that are missing, d, from 0 to n.

    Raises:
        ValueError: For more missing clients than there are, or fewer than none.

    Examples:
        >>> noise_present(clients=100, missing=19)
        0.9
    """
    if not 0 <= missing <= clients:
        raise ValueError(f"{missing} of {clients} clients are missing: take a number from 0 to {clients}")
    return math.sqrt((clients - missing) / clients)


LEFT_OUT: Literal["left-out"] = "left-out"
"""Training records of which figures are made, each decided by a classifier that was trained without it."""

Observer = Literal["model", "server", "client"]
OBSERVERS: tuple[Observer, ...] = get_args(Observer)


def noise_seen(observer: Observer, event: Event, trust: Trust, clients: int, secure_aggregation: bool) -> float:
    """Return the standard deviation of the noise between a record and an observer, in units of the planned one.

    Central: the server sees sums without noise. Distributed: the server sees each client's share (`client_share`)
    unless sums are securely aggregated, and another client can subtract its own share. Local: every client adds the
    full noise. A local epoch is protected before it leaves the client, so all observers see the same noise.
    """
    present = event.noise_present
    if event.client is not None:
        return present
    share, summed = client_share(trust, clients), present * sum_share(trust, clients)
    if observer == "server":
        return summed if secure_aggregation and trust is Trust.DISTRIBUTED else share
    if observer == "client" and clients > 1:
        return math.sqrt(max(summed**2 - share**2, 0.0))
    return summed
