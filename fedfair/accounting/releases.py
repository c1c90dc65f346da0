"""What was released, in order and on which terms, and what a record is charged for it against each observer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from itertools import zip_longest
from typing import Self

from fedfair.accounting.allocation import Allocation
from fedfair.accounting.contents import Contents
from fedfair.accounting.events import (
    LEFT_OUT,
    Event,
    Observer,
    Preprocessed,
    Release,
    Unit,
    joint_multiplier,
    noise_seen,
)
from fedfair.accounting.log import EventLog
from fedfair.accounting.selection import Charged, Selection
from fedfair.mechanisms.noise import Trust

Charge = Callable[[Event, int], tuple[Release, ...]]
"""What one event charges a record of a group, by its number."""


class Releases:
    """Keeps a log of events, to which one only adds, and says what each of them charges; `Account` composes that.

    Args:
        groups: Names of the groups, `[K]`.
        trust: Who sees sums before they carry noise.
        clients: Number of clients that share distributed noise.
        protects: What neighbouring data sets differ by: one "record", or one "participant" with all its records. Read
            "record" below as that.
        broadcasts: Whether clients are sent sums without noise.
        secure_aggregation: Whether the server sees only sums over clients, of what the events release; not of a
            threshold search or preprocessing.
        size: Public number of training records, or of participants where these are protected; None if unknown.
        preprocessing: The release from which ranges and categories were learned, or None.

    Attributes:
        log: What was released, in order.
        held_out: What was released of held-out records, by part: "valid" or "test"; and the
            figures of training records, `LEFT_OUT`.
        selections: The best of a random number of trials, by the part whose records they read: "train", or a held-out
            one.
        unprotected: What leaves without protection, and why, by name.
        files: What the files of the result hold, and what protects it; empty until they are written.

    Examples:
        >>> releases = Releases(("women", "men"), trust=Trust.CENTRAL)
        >>> releases.record(Event((0.01, 0.01), multipliers=(1.0, 1.0), spent_multipliers=(1.0, 2.0)), steps=1000)
        >>> releases.record_held_out("test", multiplier=4.0)
        >>> releases.record_selection("valid", Selection(multiplier=4.0, mean=10.0))
        >>> releases.record_preprocessing(Preprocessed(multiplier=10.0, delta=1e-6))
        >>> releases.expose("training loss", "as the app computes it")
        >>> releases.settle("training loss")
        >>> releases.count_records(50_000)
        >>> releases.unprotected, releases.size, sum(releases.events.values())
        ({}, 50000, 1000)
        >>> for charged in releases.charged(lambda event, group: (event.spent(group),), group=1):
        ...     print(dict(charged))
        {Release(rate=1.0, multiplier=10.0): 1, Release(rate=0.01, multiplier=2.0): 1000}
        >>> sum(releases.after(0.5).events.values()), sum(releases.holding(EventLog()).events.values())
        (500, 0)
        >>> again = Releases(releases.groups, trust=Trust.CENTRAL, preprocessing=releases.preprocessing)
        >>> again.resume(releases.log, releases.held_out, releases.unprotected)
        >>> again.with_files({"summary.csv": ()}).held_out == releases.held_out
        True
    """

    def __init__(self, groups: Iterable[str], trust: Trust = Trust.CENTRAL, clients: int = 1,
                 protects: Unit = "record", broadcasts: bool = False, *, secure_aggregation: bool = False,
                 size: int | None = None, preprocessing: Preprocessed | None = None) -> None:
        self.groups, self.trust, self.clients = tuple(groups), trust, clients
        self.protects, self.broadcasts, self.secure_aggregation = protects, broadcasts, secure_aggregation
        self.size, self.preprocessing = size, preprocessing
        self.log = EventLog()
        self.held_out: dict[str, Release] = {}
        self.selections: dict[str, Selection] = {}
        self.unprotected: dict[str, str] = {}
        self.files: Contents = {}

    # What happened.

    def record(self, event: Event, steps: int = 1, first: int | None = None) -> None:
        """Enter equal events that have been released; see `EventLog.record`.

        Args:
            event: What one step released.
            steps: Number of steps, at least 0.
            first: Number of the first of them, from 0; None for the next step.

        Raises:
            ValueError: If a step is entered twice, or one before it is missing.
        """
        self.log.record(event, steps, first)

    def record_held_out(self, part: str, multiplier: float) -> None:
        """Enter a release about all records of a held-out part, in which none is sampled: counts, or scores.

        Several are charged as one with less noise: Gaussian releases of all records add up, `sum_j m_j^-2`.

        Args:
            part: "valid" or "test"; or `LEFT_OUT`, which is of training records and adds to what they are charged.
            multiplier: Noise multiplier of the release, at least 0: standard deviation in units of the sensitivity.
        """
        before = self.held_out.get(part)
        joint = multiplier if before is None else joint_multiplier(before.multiplier, multiplier)
        self.held_out[part] = Release(1.0, joint)

    def record_selection(self, part: str, selection: Selection) -> None:
        """Enter the best of a random number of trials, of which nothing else was released.

        Args:
            part: Whose records all trials read: "train", "valid" or "test".
            selection: What a trial cost, and how their number was drawn.

        Raises:
            ValueError: If the part has one already.
        """
        if part in self.selections:
            raise ValueError(f"a selection by {part} records is in the ledger already, and another would be another "
                             "release: a ledger holds one of each part")
        self.selections[part] = selection

    def record_preprocessing(self, release: Preprocessed) -> None:
        """Enter a release about all records from which preprocessing learned; several are charged together.

        Args:
            release: Its noise, and its part of delta.
        """
        self.preprocessing = release if self.preprocessing is None else self.preprocessing.with_another(release)

    def expose(self, name: str, why: str) -> None:
        """Name something that leaves without protection, for example metrics on held-out data.

        Args:
            name: What leaves.
            why: What it contains, and that it is not protected.
        """
        self.unprotected[name] = why

    def settle(self, name: str) -> None:
        """Withdraw what `expose` named, if it did, once it has been charged like any other release.

        Args:
            name: What left.
        """
        self.unprotected.pop(name, None)

    def count_records(self, size: int) -> None:
        """Enter the public number of training records, where nodes tell their own on the way.

        Args:
            size: The sum of those that have been told.
        """
        self.size = size

    def resume(self, log: EventLog, held_out: Mapping[str, Iterable[float]], unprotected: Mapping[str, str]) -> None:
        """Go on from what an earlier process had recorded.

        Args:
            log: Its released events.
            held_out: Rate and multiplier of its release about each held-out part.
            unprotected: What it named as leaving without protection, and why.
        """
        self.log, self.unprotected = log, dict(unprotected)
        self.held_out = {part: Release(*release) for part, release in held_out.items()}

    def holding(self, log: EventLog) -> Self:
        """Return an account on the same terms that holds another log.

        Args:
            log: The released events of the new account.
        """
        other = copy(self)
        other.log, other.unprotected, other.held_out = log, dict(self.unprotected), dict(self.held_out)
        other.selections = dict(self.selections)
        return other

    def with_files(self, files: Contents) -> Self:
        """Return the same account, which says what the files of its result hold.

        Args:
            files: Parts by file.
        """
        other = self.holding(self.log)
        other.files = files
        return other

    def after(self, share: float) -> Self:
        """Return the account as it stood after a share of the training, or of every client's local steps.

        Args:
            share: Share of the steps, from 0 to 1.

        Raises:
            ValueError: For another share.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share is {share}: it must be from 0 to 1")
        return self.holding(self.log.prefix(share))

    @property
    def events(self) -> Counter[Event]:
        """How often each event was released."""
        return self.log.counted()

    # What it charges.

    def charged(self, charge: Charge, group: int, observer: Observer | None = None) -> Iterator[Counter[Charged]]:
        """Yield what a record of a group is charged, for each client that trained alone, or once for all.

        It is charged for private preprocessing and a selection, and a participant also for the search on its validation
        records.

        Args:
            charge: What one event charges a record of a group.
            group: Number of the group.
            observer: Against whom; None for the noise that the releases carry.
        """
        shared: Counter[Charged] = Counter([*self._counted(observer), *self._preprocessed(observer),
                                            *self._selected(observer)])
        by_client: dict[int, Counter[Charged]] = {}
        for client, release, times in self._of_steps(charge, group):
            releases = shared if client is None else by_client.setdefault(client, Counter())
            releases[release] += times
        distinct = {frozenset(releases.items()): releases for releases in by_client.values()}
        yield from (shared + releases for releases in distinct.values())
        if not by_client:
            yield shared

    def _of_steps(self, charge: Charge, group: int) -> Iterator[tuple[int | None, Charged, int]]:
        """Yield what a record of a group is charged for Poisson-sampled steps, and for epochs of balls in bins.

        Before each is the client whose records it is about, and behind it how often it was made.
        """
        for event, steps in self.events.items():
            if event.bins is None:
                yield from ((event.client, release, steps) for release in charge(event, group))
        for epoch in self.log.epochs():
            one, nothing = next(iter(epoch)), Release(0.0, math.inf)
            for releases in zip_longest(*(charge(event, group) for event in epoch), fillvalue=nothing):
                if any(release.rate for release in releases):
                    least = min(release.multiplier for release in releases)
                    yield one.client, Allocation(one.bins or 1, epoch.total(), least), 1

    def _seen(self, observer: Observer, event: Event) -> float:
        """Return the noise between a record and an observer."""
        if observer == "client" and self.broadcasts:
            return 0.0
        return noise_seen(observer, event, self.trust, self.clients, self.secure_aggregation)

    def _counted(self, observer: Observer | None) -> list[Release]:
        """Return what counts cost: a training record those of its figures, a participant the search for a threshold.

        If an observer is named, the charge follows the noise that is between the records and the observer.
        """
        found = [release for part, release in self.held_out.items()
                 if part == LEFT_OUT or (part == "valid" and self.protects == "participant")]
        if observer is None:
            return found
        events = [Event((rate,), (multiplier,), (multiplier,)) for rate, multiplier in found]
        return [event.guaranteed(0, noise_seen(observer, event, self.trust, self.clients, secure_aggregation=False))
                for event in events]

    def _preprocessed(self, observer: Observer | None) -> list[Release]:
        """Return what a record is charged for private preprocessing, by the noise that an observer does not know."""
        if self.preprocessing is None:
            return []
        multiplier = self.preprocessing.multiplier
        if observer is None:
            return [Release(1.0, multiplier)]
        event = Event((1.0,), (multiplier,), (multiplier,))
        seen = noise_seen(observer, event, self.trust, self.clients, secure_aggregation=False)
        return [event.guaranteed(0, min(seen, 1.0))]  # a client's list of categories has its own noise alone

    def _selected(self, observer: Observer | None) -> list[Charged]:
        """Return what a record is charged for a selection: nothing protects it from who sees the trials' sums.

        A participant is charged for what was selected of its held-out records, too.
        """
        found = [of for part, of in self.selections.items() if part == "train" or self.protects == "participant"]
        if observer is None:
            return [*found]
        event = Event((1.0,), (1.0,), (1.0,))
        seen = noise_seen(observer, event, self.trust, self.clients, secure_aggregation=False)
        return [of._replace(multiplier=of.multiplier * min(seen, 1.0)) for of in found]
