"""The ledger: the events that were released, and what they cost each group against each observer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import asdict
from typing import Any, Literal

from fedfair.accounting.composition import Accountant, epsilon
from fedfair.accounting.contents import Contents, from_json, left_to_trust, objections, to_json
from fedfair.accounting.events import (
    OBSERVERS,
    PUBLIC,
    Event,
    Observer,
    Preprocessed,
    Release,
    Unit,
    joint_multiplier,
    noise_seen,
)
from fedfair.accounting.figures import up
from fedfair.accounting.log import EventLog
from fedfair.accounting.notebook import as_html, epsilons
from fedfair.accounting.odometer import RenyiFilter, reading
from fedfair.accounting.selection import Charged, Charges, Selection
from fedfair.mechanisms.noise import Trust

Guarantee = Literal["proved", "simulated", "nominal", "none"]
_PARTS = {"valid": "validation data", "test": "test data"}
_USES = {"valid": "what was chosen on it", "test": "the figures"}
Charge = Callable[[Event, int], tuple[Release, ...]]


class Ledger:
    """Keeps a log of events, and composes them on demand.

    Args:
        groups: Names of the groups, `[K]`.
        delta: Default delta, strictly between 0 and 1.
        trust: Who sees sums before they carry noise.
        clients: Number of clients that share distributed noise.
        accountant: "pld" or "rdp", for figures that name none.
        nominal: Why no proof supports the epsilon, or None.
        simulated: Why the noise can be taken away although the figures are proved for secret noise, or None.
        protects: What neighbouring data sets differ by: one "record", or one "participant" with all its records. Read
            "record" below as that.
        broadcasts: Whether clients are sent sums without noise.
        secure_aggregation: Whether the server sees only sums over clients, of what the events release; not of a
            threshold search or preprocessing.
        public: What everybody is assumed to know; None for `PUBLIC` of what is protected.
        budget: A filter that keeps every group within a budget, or None.
        size: Public number of training records, or of participants where these are protected; None if unknown.
        preprocessing: The release from which ranges and categories were learned, or None.

    Attributes:
        log: What was released, in order.
        held_out: What was released of held-out records, by part: "valid" or "test".
        selections: The best of a random number of trials, by the part whose records they read: "train", or a held-out
            one.
        unprotected: What leaves without protection, and why, by name.
        files: What the files of the result hold, and what protects it; empty until they are written.
    """

    def __init__(self, groups: Iterable[str], delta: float, trust: Trust = Trust.CENTRAL, clients: int = 1,
                 accountant: Accountant = "pld", nominal: str | None = None, protects: Unit = "record",
                 broadcasts: bool = False, *, secure_aggregation: bool = False, public: str | None = None,
                 budget: RenyiFilter | None = None, simulated: str | None = None,
                 size: int | None = None, preprocessing: Preprocessed | None = None) -> None:
        self.groups, self.delta, self.trust, self.clients = tuple(groups), delta, trust, clients
        self.accountant, self.nominal, self.protects, self.broadcasts = accountant, nominal, protects, broadcasts
        self.secure_aggregation, self.public, self.budget = secure_aggregation, public or PUBLIC[protects], budget
        self.simulated, self.size, self.preprocessing = simulated, size, preprocessing
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
            part: "valid" or "test".
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

    def expose(self, name: str, why: str) -> None:
        """Name something that leaves without protection, for example metrics on held-out data.

        Args:
            name: What leaves.
            why: What it contains, and that it is not protected.
        """
        self.unprotected[name] = why

    def holding(self, log: EventLog) -> Ledger:
        """Return a ledger on the same terms that holds another log.

        Args:
            log: The released events of the new ledger.
        """
        other = copy(self)
        other.log, other.unprotected, other.held_out = log, dict(self.unprotected), dict(self.held_out)
        other.selections = dict(self.selections)
        return other

    def after(self, share: float) -> Ledger:
        """Return the ledger as it stood after a share of the training, or of every client's local steps.

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

    # What it costs.

    def held_out_epsilon(self, part: str, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """Return what releases about a held-out part spent of one of its records' privacy.

        That is 0 without a release, and infinite if one had no noise. The parts are disjoint: none of these figures
        adds to another. A participant may have records in several parts: where participants are protected, this is
        part of every other figure.

        Args:
            part: "valid" or "test".
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        found = (self.held_out.get(part), self.selections.get(part))
        releases = Counter(release for release in found if release)
        return epsilon(releases, self.delta if delta is None else delta, accountant or self.accountant)

    def epsilon(self, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """Return what the noise guarantees to any record: the largest epsilon over groups and clients.

        It holds against anyone who gets the final model, and under local trust against everybody; see `by_observer`.

        Args:
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        return max(self.guaranteed_by_group(delta, accountant).values(), default=0.0)

    def guaranteed_by_group(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[str, float]:
        """Return what a record of each group was guaranteed in advance, whatever the bounds.

        The noise guarantees it, or the budget if that is less and the real releases stayed within it.

        Args:
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        fixed = self._by_group(lambda event, k: (event.guaranteed(k),), delta, accountant)
        if self.budget is None:
            return fixed
        limit = self.budget.epsilon(self._delta(delta))
        return {name: min(fixed[name], limit) if self._within_budget(k) else fixed[name]
                for k, name in enumerate(self.groups)}

    def epsilon_by_group(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[str, float]:
        """Return what a record of each group has spent: the composition of the bounds that were in force.

        Where bounds depend on earlier noisy outputs this is what composition would give had they been fixed in advance,
        not a guarantee (Rogers et al. 2016). `odometer_by_group` is a proved bound on what was spent;
        `guaranteed_by_group` is what was certain from the start.

        Args:
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        return self._by_group(lambda event, k: (event.spent(k),), delta, accountant)

    def odometer_by_group(self, delta: float | None = None) -> dict[str, float]:
        """Return a proved bound on what a record of each group has spent, although bounds were chosen on the way.

        With probability 1 - delta its privacy loss never exceeded this (see `odometer.reading`). Every step is charged
        what was certain before it began (see `Event`).

        Args:
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
        """
        at = self._delta(delta)
        return self._largest(lambda event, k: (event.certain(k),), lambda releases: self._with_delta(
            at, lambda left: reading(releases, left)))

    def epsilon_separate(self, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """Return epsilon if gradients and counts were two separately sampled events, as the papers compose them.

        Args:
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        return max(self._by_group(Event.separate, delta, accountant).values(), default=0.0)

    def approximate_by_group(self, delta: float | None = None, accountant: Accountant | None = None
                             ) -> dict[str, float]:
        """Return the papers' approximation `(C_k / max C) * epsilon` (Xu et al. 2021), by the mean ratio of steps.

        Args:
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        overall, events = self.epsilon(delta, accountant), self.events
        if self.selections and not events:
            return dict.fromkeys(self.groups, overall)
        steps = max(sum(events.values()), 1)
        approximations = {}
        for k, name in enumerate(self.groups):
            ratio = sum(count * _ratio(event, k) for event, count in events.items()) / steps
            approximations[name] = ratio * overall
        return approximations

    def by_observer(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[Observer, float]:
        """Return what any record is guaranteed against each observer; see `observers`.

        Args:
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        def against(observer: Observer) -> float:
            """Return the largest epsilon of all groups against one observer."""
            return max(self._by_group(lambda event, k: (event.guaranteed(k, self._seen(observer, event)),), delta,
                                      accountant, observer).values(), default=0.0)

        fixed = {observer: against(observer) for observer in OBSERVERS}
        return {**fixed, "model": min(fixed["model"], self.epsilon(delta, accountant))}

    def by_observer_and_group(self, delta: float | None = None, accountant: Accountant | None = None
                              ) -> dict[Observer, dict[str, float]]:
        """Return what a record of each group has spent against each observer; see `epsilon_by_group`.

        Args:
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        return {observer: self._by_group(lambda event, k, o=observer: (  # type: ignore[misc]
            event.spent(k, self._seen(o, event)),), delta, accountant, observer) for observer in OBSERVERS}

    # What the figures are worth.

    @property
    def guarantee(self) -> Guarantee:
        """The kind of guarantee.

        "none" if epsilon is infinite, "nominal" if no proof supports the figure, "simulated" if only a seed hides the
        noise, else "proved".
        """
        if not math.isfinite(self.epsilon()):
            return "none"
        if self.nominal:
            return "nominal"
        return "simulated" if self.simulated else "proved"

    @property
    def reason(self) -> str:
        """Why the guarantee is of this kind, in words."""
        if self.guarantee == "none":
            return "a release carried no noise in proportion to what one record can add"
        doubts = "; ".join(filter(None, (self.nominal, self.simulated)))
        if self.guarantee == "simulated":
            return f"{doubts}; with secret randomness it would be proved"
        chosen = ("; one is the best of a random number of trials, and is charged for the choice (see "
                  "`fedfair.accounting.selection`)" if self.selections else "")
        return doubts or (f"every release is a Poisson-sampled Gaussian with noise in proportion to what one "
                          f"{self.protects} can add{chosen}; composed by {self.accountant}; "
                          f"neighbours differ by one {self.protects}")

    def held_out_data(self, part: str) -> str:
        """Say what was released of a held-out part, and at what cost.

        Args:
            part: "valid" or "test".
        """
        named = _PARTS[part]
        if part not in {**self.held_out, **self.selections}:
            return f"{named}: not used, but for metrics"
        if math.isinf(self.held_out_epsilon(part)):
            return f"{named}: not protected"
        apart = "part of the figures above" if self.protects == "participant" else "apart from that of training data"
        return (f"{named}: epsilon {up(self.held_out_epsilon(part), '.3g')} at delta {up(self.delta, '.6g')} for each "
                f"{self.protects}, against anyone who gets {_USES[part]}, {apart}")

    def preprocessing_data(self) -> str:
        """Say what preprocessing learned from a noisy release, and at what cost; "" if it learned nothing so."""
        if self.preprocessing is None:
            return ""
        release = {Release(1.0, self.preprocessing.multiplier): 1}
        alone = self._with_delta(self.delta, lambda left: epsilon(release, left, self.accountant))
        listed = (f"; with a probability of {up(self.preprocessing.delta, '.3g')}, which is part of delta, a category "
                  "of one record alone is listed" if self.preprocessing.delta else "")
        return (f"preprocessing: ranges and categories come from a noisy release, which alone has epsilon "
                f"{up(alone, '.3g')}; it is part of the figures above{listed}")

    def delta_warning(self, delta: float | None = None) -> str:
        """Say that delta is so large that a guarantee means little: above one over the number of records; or "".

        Args:
            delta: Delta of the figures, strictly between 0 and 1; None for the ledger's.
        """
        at = self._delta(delta)
        if self.guarantee == "none" or not self.size or at * self.size <= 1:
            return ""
        return (f"delta {up(at, '.3g')} is above 1/{self.size:,}, one over the number of training {self.protects}s: it "
                f"would permit publishing a whole {self.protects}, so choose a smaller one")

    def left_to_trust(self) -> list[str]:
        """Say what has to be trusted for the figures to hold."""
        return left_to_trust(self.trust, self.clients, self.secure_aggregation, self.public, self.simulated is not None)

    def reading(self) -> str:
        """Say what the figures of `epsilon_by_group` are."""
        adaptive = any(event.spent_multipliers != event.multipliers for event in self.events)
        return "an odometer reading: the bounds depended on earlier outputs" if adaptive else "guaranteed in advance"

    def objections(self) -> dict[str, list[str]]:
        """Return why the files cannot be published, by whose privacy that would harm (see `contents.objections`)."""
        doubt = f"the guarantee of the releases is {self.guarantee}: {self.reason}"
        return objections(self.files, self.protects, None if self.guarantee == "proved" else doubt)

    # As text.

    def to_dict(self) -> dict[str, Any]:
        """Return everything, with the figures at the default delta, for JSON."""
        return {
            "groups": list(self.groups), "delta": self.delta, "trust": self.trust.value, "clients": self.clients,
            "secure_aggregation": self.secure_aggregation, "accountant": self.accountant,
            "protects": self.protects, "broadcasts": self.broadcasts,
            "guarantee": self.guarantee, "guarantee_because": self.reason, "nominal_because": self.nominal,
            "simulated_because": self.simulated,
            "public_by_assumption": self.public, "left_to_trust": self.left_to_trust(), "size": self.size,
            "budget": asdict(self.budget) if self.budget else None,
            "epsilon": self.epsilon(), "epsilon_rdp": self.epsilon(accountant="rdp"),
            "epsilon_counts_sampled_separately_rdp": self.epsilon_separate(accountant="rdp"),
            "spent_by_group": self.epsilon_by_group(), "spent_by_group_is": self.reading(),
            "odometer_by_group": self.odometer_by_group(),
            "guaranteed_by_group": self.guaranteed_by_group(), "approximate_by_group": self.approximate_by_group(),
            "by_observer": self.by_observer(), "spent_by_observer_and_group": self.by_observer_and_group(),
            "validation_data": self.held_out_data("valid"), "test_data": self.held_out_data("test"),
            "not_protected": self.unprotected,
            "files": to_json(self.files), "cannot_be_published_because": self.objections(),
            "selections": {part: selection._asdict() for part, selection in self.selections.items()},
            **{f"{_PARTS[part].removesuffix(' data')}_release": list(self.held_out[part]) if part in self.held_out
               else None for part in _PARTS},
            "preprocessing_data": self.preprocessing_data(),
            "preprocessing_release": None if self.preprocessing is None else list(self.preprocessing),
            **self.log.to_dict(),
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Ledger:
        """Read the ledger that `to_dict` wrote, ready to go on; figures are computed anew from its events.

        Args:
            values: What `to_dict` returned, possibly through JSON.
        """
        ledger = Ledger(values["groups"], values["delta"], Trust(values["trust"]), values["clients"],
                        values["accountant"], values["nominal_because"], values["protects"], values["broadcasts"],
                        secure_aggregation=values["secure_aggregation"], public=values["public_by_assumption"],
                        budget=RenyiFilter(**values["budget"]) if values["budget"] else None,
                        simulated=values.get("simulated_because"),  # kept runs of before have no such entry
                        size=values.get("size"),
                        preprocessing=Preprocessed(*values["preprocessing_release"])
                        if values.get("preprocessing_release") else None)
        ledger.log = EventLog.from_dict(values)
        ledger.unprotected = dict(values["not_protected"])
        ledger.files = from_json(values.get("files", {}))
        for part, entry in (("valid", "validation_release"), ("test", "test_release")):
            if values.get(entry):  # kept runs of before have no test release
                ledger.held_out[part] = Release(*values[entry])
        for part, entry in values.get("selections", {}).items():
            ledger.record_selection(part, Selection(**entry))
        return ledger

    # How.

    def _repr_html_(self) -> str:
        """Show epsilon by group and observer, for notebooks."""
        title = f"epsilon at delta {up(self.delta, '.6g')}, for one {self.protects}, by {self.accountant}"
        by_group = {"guaranteed": self.guaranteed_by_group(), "guaranteed, by RDP": self.guaranteed_by_group(
            accountant="rdp"), "spent": self.epsilon_by_group(), "odometer": self.odometer_by_group()}
        spent = self.by_observer_and_group()
        by_observer = {"guaranteed to all": self.by_observer(), **{
            f"spent by {name}": {observer: of[name] for observer, of in spent.items()} for name in self.groups}}
        notes = filter(None, [
            f"guarantee: {self.guarantee}, because {self.reason}", self.held_out_data("valid"),
            self.held_out_data("test") if "test" in self.held_out else "", self.delta_warning(),
            *(f"not protected: {name} ({why})" for name, why in self.unprotected.items())])
        return as_html(title, [epsilons("group", by_group), epsilons("against", by_observer)], list(notes))

    def _delta(self, delta: float | None) -> float:
        """Return the default delta unless another is given."""
        return self.delta if delta is None else delta

    def _with_delta(self, delta: float, cost: Callable[[float], float]) -> float:
        """Return the cost at what private preprocessing leaves of a delta; infinite if it leaves nothing."""
        if self.preprocessing is None:
            return cost(delta)
        left = delta - self.preprocessing.delta
        return cost(left) if left > 0 else math.inf

    def _seen(self, observer: Observer, event: Event) -> float:
        """Return the noise between a record and an observer."""
        if observer == "client" and self.broadcasts:
            return 0.0
        return noise_seen(observer, event, self.trust, self.clients, self.secure_aggregation)

    def _searched(self, observer: Observer | None) -> list[Release]:
        """Return what a participant is charged for the threshold search on its validation records.

        If an observer is named, the charge follows the noise that is between the records and the observer.
        """
        if "valid" not in self.held_out or self.protects != "participant":
            return []
        if observer is None:
            return [self.held_out["valid"]]
        rate, multiplier = self.held_out["valid"]
        event = Event((rate,), (multiplier,), (multiplier,))
        return [event.guaranteed(0, noise_seen(observer, event, self.trust, self.clients, secure_aggregation=False))]

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

    def _within_budget(self, group: int) -> bool:
        """Return whether a group's releases, with the noise that was really there, stayed within the budget."""
        assert self.budget is not None
        return all(map(self.budget.holds, self._charged(lambda event, k: (event.certain(k),), group)))

    def _by_group(self, charge: Charge, delta: float | None, accountant: Accountant | None,
                  observer: Observer | None = None) -> dict[str, float]:
        """Return epsilon of what each group is charged."""
        at = self._delta(delta)
        return self._largest(charge, lambda releases: self._with_delta(
            at, lambda left: epsilon(releases, left, accountant or self.accountant)), observer)

    def _largest(self, charge: Charge, cost: Callable[[Charges], float],
                 observer: Observer | None = None) -> dict[str, float]:
        """Return by group the largest cost over the clients that hold its records."""
        return {name: max(map(cost, self._charged(charge, k, observer)), default=0.0)
                for k, name in enumerate(self.groups)}

    def _charged(self, charge: Charge, group: int, observer: Observer | None = None) -> Iterator[Counter[Charged]]:
        """Yield what a record of a group is charged, for each client that trained alone, or once for all.

        It is charged for private preprocessing and a selection, and a participant also for the search on its validation
        records.
        """
        shared: Counter[Charged] = Counter([*self._searched(observer), *self._preprocessed(observer),
                                            *self._selected(observer)])
        by_client: dict[int, Counter[Charged]] = {}
        for event, steps in self.events.items():
            releases = shared if event.client is None else by_client.setdefault(event.client, Counter())
            for release in charge(event, group):
                releases[release] += steps
        distinct = {frozenset(releases.items()): releases for releases in by_client.values()}
        yield from (shared + releases for releases in distinct.values())
        if not by_client:
            yield shared


def _ratio(event: Event, group: int) -> float:
    """Return the group's clip norm over the largest, at one step."""
    spent = event.spent_multipliers[group]
    return event.multipliers[group] / spent if spent else 1.0
