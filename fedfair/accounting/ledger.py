"""The ledger: the events that really happened, and what they cost each group against each observer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

from fedfair.accounting.composition import Accountant, epsilon
from fedfair.accounting.events import Event
from fedfair.accounting.log import EventLog
from fedfair.accounting.observers import OBSERVERS, Observer, noise_seen
from fedfair.accounting.odometer import RenyiFilter, reading
from fedfair.accounting.release import Release, joint_multiplier
from fedfair.mechanisms.noise import Trust
from fedfair.unit import PUBLIC, Unit

Guarantee = Literal["proved", "nominal", "none"]
Charge = Callable[[Event, int], tuple[Release, ...]]


class Ledger:
    """Keeps a log of events, and composes them on demand.

    `groups` are the groups' names, `delta` the default delta. `trust`, `clients` and `secure_aggregation` say who added
    the noise and who sees sums, `broadcasts` that clients are sent sums without noise. `nominal` is the reason why an
    epsilon would not be supported by a proof, or None. `protects` says what is added or removed between neighbouring
    data sets: one record, or one participant with all its records, for whom "record" below then stands. `public` says
    what is assumed to be known to everybody, by default `PUBLIC`. `budget` is a filter that keeps every group within
    it. `unprotected` names what leaves without protection, and why it does.
    """

    def __init__(self, groups: Iterable[str], delta: float, trust: Trust = Trust.CENTRAL, clients: int = 1,
                 accountant: Accountant = "pld", nominal: str | None = None, protects: Unit = "record",
                 broadcasts: bool = False, *, secure_aggregation: bool = False, public: str | None = None,
                 budget: RenyiFilter | None = None) -> None:
        self.groups, self.delta, self.trust, self.clients = tuple(groups), delta, trust, clients
        self.accountant, self.nominal, self.protects, self.broadcasts = accountant, nominal, protects, broadcasts
        self.secure_aggregation, self.public, self.budget = secure_aggregation, public or PUBLIC[protects], budget
        self.log = EventLog()
        self.validation: Release | None = None
        self.unprotected: dict[str, str] = {}

    # What happened.

    def record(self, event: Event, steps: int = 1, first: int | None = None) -> None:
        """Enter `steps` equal events that have been released, from step `first` on (by default the next one).

        Raises `ValueError` if a step is entered twice or one is missing; see `EventLog.record`.
        """
        self.log.record(event, steps, first)

    def record_search(self, multiplier: float) -> None:
        """Enter a release about all validation records, in which none is sampled: a threshold search.

        Several are one with less noise: Gaussian releases of everything add up, `sum_j m_j^-2`.
        """
        before = self.validation
        joint = multiplier if before is None else joint_multiplier(before.multiplier, multiplier)
        self.validation = Release(1.0, joint)

    def expose(self, name: str, why: str) -> None:
        """Name something that leaves without protection, for example metrics on held-out data."""
        self.unprotected[name] = why

    @property
    def events(self) -> Counter[Event]:
        """How often each event was released."""
        return self.log.counted()

    # What it costs.

    def validation_epsilon(self, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """What threshold searches spent of a validation record's privacy: nothing if there was none, infinite if one
        read the records without noise.

        Validation and training records are disjoint: neither figure adds to the other. A participant may have both:
        where participants are protected, this is part of every other figure.
        """
        releases = {} if self.validation is None else {self.validation: 1}
        return epsilon(releases, self.delta if delta is None else delta, accountant or self.accountant)

    def epsilon(self, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """What any record is guaranteed by the noise of a release: the largest over groups and clients.

        It holds against whoever gets the final model, and under local trust against everybody; see `by_observer`.
        """
        return max(self.guaranteed_by_group(delta, accountant).values(), default=0.0)

    def guaranteed_by_group(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[str, float]:
        """What a record of each group was guaranteed in advance, whatever the bounds: by the noise, or by the budget if
        that is less and what was really released stayed within it.
        """
        fixed = self._by_group(lambda event, k: (event.guaranteed(k),), delta, accountant)
        if self.budget is None:
            return fixed
        limit = self.budget.epsilon(self._delta(delta))
        return {name: min(fixed[name], limit) if self._within_budget(k) else fixed[name]
                for k, name in enumerate(self.groups)}

    def epsilon_by_group(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[str, float]:
        """What a record of each group has spent: the composition of the bounds that were in force.

        Where bounds depend on earlier noisy outputs this is what composition would give had they been fixed in advance,
        not a guarantee (Rogers et al. 2016); `odometer_by_group` bounds what was spent with proof, and
        `guaranteed_by_group` says what was certain from the start.
        """
        return self._by_group(lambda event, k: (event.spent(k),), delta, accountant)

    def odometer_by_group(self, delta: float | None = None) -> dict[str, float]:
        """A proved bound on what a record of each group has spent, although the bounds were chosen on the way: with
        probability 1 - delta its privacy loss never exceeded this (see `odometer.reading`). Every step is charged what
        was certain before it began (see `Event`).
        """
        at = self._delta(delta)
        return self._largest(lambda event, k: (event.certain(k),), lambda releases: reading(releases, at))

    def epsilon_separate(self, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """Epsilon if gradients and counts were two separately sampled events, as the papers compose them."""
        return max(self._by_group(Event.separate, delta, accountant).values(), default=0.0)

    def approximate_by_group(self, delta: float | None = None, accountant: Accountant | None = None
                             ) -> dict[str, float]:
        """The papers' approximation `(C_k / max C) * epsilon` (Xu et al. 2021), with the mean ratio over the steps."""
        overall, events = self.epsilon(delta, accountant), self.events
        ratios = [sum(count * _ratio(event, k) for event, count in events.items()) / max(sum(events.values()), 1)
                  for k in range(len(self.groups))]
        return {name: ratio * overall for name, ratio in zip(self.groups, ratios, strict=True)}

    def by_observer(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[Observer, float]:
        """What any record is guaranteed against each observer; see `observers`."""
        def against(observer: Observer) -> float:
            """The largest epsilon of all groups against one observer."""
            return max(self._by_group(lambda event, k: (event.guaranteed(k, self._seen(observer, event)),), delta,
                                      accountant, observer).values(), default=0.0)

        fixed = {observer: against(observer) for observer in OBSERVERS}
        return {**fixed, "model": min(fixed["model"], self.epsilon(delta, accountant))}

    def by_observer_and_group(self, delta: float | None = None, accountant: Accountant | None = None
                              ) -> dict[Observer, dict[str, float]]:
        """What a record of each group has spent against each observer; see `epsilon_by_group`."""
        return {observer: self._by_group(lambda event, k, o=observer: (  # type: ignore[misc]
            event.spent(k, self._seen(o, event)),), delta, accountant, observer) for observer in OBSERVERS}

    # What the figures are worth.

    @property
    def guarantee(self) -> Guarantee:
        """"proved", "nominal" (no proof supports the figure) or "none" (epsilon is infinite)."""
        if not math.isfinite(self.epsilon()):
            return "none"
        return "nominal" if self.nominal else "proved"

    @property
    def reason(self) -> str:
        """Why the guarantee is what it is, in words."""
        if self.guarantee == "none":
            return "a release carried no noise in proportion to what one record can add"
        return self.nominal or ("every release is a Poisson-sampled Gaussian with noise in proportion to what one "
                                f"{self.protects} can add; composed by {self.accountant}; neighbours differ by one "
                                f"{self.protects}")

    def validation_data(self) -> str:
        """What the threshold of a run reveals about validation records, in words."""
        if self.validation is None:
            return "validation data: not used, but for metrics"
        if math.isinf(self.validation_epsilon()):
            return "validation data: not protected"
        apart = "part of the figures above" if self.protects == "participant" else "apart from that of training data"
        return (f"validation data: epsilon {self.validation_epsilon():.3g} at delta {self.delta:g} for each "
                f"{self.protects}, against whoever gets the threshold, {apart}")

    def reading(self) -> str:
        """What the figures of `epsilon_by_group` are, in words."""
        adaptive = any(event.spent_multipliers != event.multipliers for event in self.events)
        return "an odometer reading: the bounds depended on earlier outputs" if adaptive else "guaranteed in advance"

    # As text.

    def to_dict(self) -> dict[str, Any]:
        """Everything, with the figures at the default delta, for JSON."""
        return {
            "groups": list(self.groups), "delta": self.delta, "trust": self.trust.value, "clients": self.clients,
            "secure_aggregation": self.secure_aggregation, "accountant": self.accountant,
            "protects": self.protects, "broadcasts": self.broadcasts,
            "guarantee": self.guarantee, "guarantee_because": self.reason, "nominal_because": self.nominal,
            "public_by_assumption": self.public, "budget": asdict(self.budget) if self.budget else None,
            "epsilon": self.epsilon(), "epsilon_rdp": self.epsilon(accountant="rdp"),
            "epsilon_counts_sampled_separately_rdp": self.epsilon_separate(accountant="rdp"),
            "spent_by_group": self.epsilon_by_group(), "spent_by_group_is": self.reading(),
            "odometer_by_group": self.odometer_by_group(),
            "guaranteed_by_group": self.guaranteed_by_group(), "approximate_by_group": self.approximate_by_group(),
            "by_observer": self.by_observer(), "spent_by_observer_and_group": self.by_observer_and_group(),
            "validation_data": self.validation_data(), "not_protected": self.unprotected,
            "validation_release": None if self.validation is None else list(self.validation),
            **self.log.to_dict(),
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Ledger:
        """The ledger that `to_dict` wrote, ready to go on; figures are computed anew from its events."""
        ledger = Ledger(values["groups"], values["delta"], Trust(values["trust"]), values["clients"],
                        values["accountant"], values["nominal_because"], values["protects"], values["broadcasts"],
                        secure_aggregation=values["secure_aggregation"], public=values["public_by_assumption"],
                        budget=RenyiFilter(**values["budget"]) if values["budget"] else None)
        ledger.log = EventLog.from_dict(values)
        ledger.unprotected = dict(values["not_protected"])
        if values["validation_release"]:
            ledger.validation = Release(*values["validation_release"])
        return ledger

    # How.

    def _delta(self, delta: float | None) -> float:
        """The default delta unless another is given."""
        return self.delta if delta is None else delta

    def _seen(self, observer: Observer, event: Event) -> float:
        """The noise between a record and an observer."""
        if observer == "client" and self.broadcasts:
            return 0.0
        return noise_seen(observer, event, self.trust, self.clients, self.secure_aggregation)

    def _searched(self, observer: Observer | None) -> list[Release]:
        """What a participant is charged for the search of a threshold on its validation records, by the noise that is
        between them and an observer, if one is named.
        """
        if self.validation is None or self.protects != "participant":
            return []
        if observer is None:
            return [self.validation]
        rate, multiplier = self.validation
        event = Event((rate,), (multiplier,), (multiplier,))
        seen = noise_seen(observer, event, self.trust, self.clients, self.secure_aggregation)
        return [event.guaranteed(0, seen)]

    def _within_budget(self, group: int) -> bool:
        """Whether a group's releases, with the noise that was really there, stayed within the budget."""
        assert self.budget is not None
        return all(map(self.budget.holds, self._charged(lambda event, k: (event.certain(k),), group)))

    def _by_group(self, charge: Charge, delta: float | None, accountant: Accountant | None,
                  observer: Observer | None = None) -> dict[str, float]:
        """Epsilon of what each group is charged."""
        return self._largest(charge, lambda releases: epsilon(releases, self._delta(delta),
                                                              accountant or self.accountant), observer)

    def _largest(self, charge: Charge, cost: Callable[[Mapping[Release, int]], float],
                 observer: Observer | None = None) -> dict[str, float]:
        """By group, the largest cost over the clients that hold its records."""
        return {name: max(map(cost, self._charged(charge, k, observer)), default=0.0)
                for k, name in enumerate(self.groups)}

    def _charged(self, charge: Charge, group: int, observer: Observer | None = None) -> Iterator[Counter[Release]]:
        """What a record of a group is charged, for each client that trained alone, or once for all; a participant also
        for the search of a threshold on its validation records.
        """
        shared = Counter(self._searched(observer))
        own: dict[int, Counter[Release]] = {}
        for event, steps in self.events.items():
            releases = shared if event.client is None else own.setdefault(event.client, Counter())
            for release in charge(event, group):
                releases[release] += steps
        distinct = {frozenset(releases.items()): releases for releases in own.values()}
        yield from (shared + releases for releases in distinct.values())
        if not own:
            yield shared


def _ratio(event: Event, group: int) -> float:
    """The group's clip norm over the largest, at one step."""
    spent = event.spent_multipliers[group]
    return event.multipliers[group] / spent if spent else 1.0
