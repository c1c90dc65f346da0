"""The account: what the releases of a run cost each group, against each observer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

from fedfair.accounting.composition import Accountant, epsilon
from fedfair.accounting.events import OBSERVERS, PUBLIC, Event, Observer, Preprocessed, Release, Unit
from fedfair.accounting.odometer import RenyiFilter, reading
from fedfair.accounting.releases import Charge, Releases
from fedfair.accounting.selection import Charged, Charges
from fedfair.mechanisms.noise import Trust

Guarantee = Literal["proved", "simulated", "nominal", "none"]


class Account(Releases):
    """What was released (see `Releases`), and what all of it together costs, composed on demand.

    Args:
        groups: Names of the groups, `[K]`.
        delta: Default delta, strictly between 0 and 1.
        trust: Who sees sums before they carry noise.
        clients: Number of clients that share distributed noise.
        accountant: "pld" or "rdp", for figures that name none.
        nominal: All reasons why no proof supports the epsilon, or None.
        simulated: Why the noise can be taken away although the figures are proved for secret noise, or None.
        protects: What neighbouring data sets differ by: one "record", or one "participant" with all its records. Read
            "record" below as that.
        broadcasts: Whether clients are sent sums without noise.
        secure_aggregation: Whether the server sees only sums over clients, of what the events release; not of a
            threshold search or preprocessing.
        public: What everybody is assumed to know; None for `PUBLIC` of what is protected.
        budget: A filter that keeps every group within a budget, or one for each group, `[K]`; None for none.
        size: Public number of training records, or of participants where these are protected; None if unknown.
        preprocessing: The release from which ranges and categories were learned, or None.

    Examples:
        >>> account = Account(("women", "men"), delta=1e-5, accountant="rdp")
        >>> step = Event((0.01, 0.01), multipliers=(1.0, 1.0), spent_multipliers=(1.0, 2.0), count_multiplier=10.0)
        >>> account.record(step, steps=1000)
        >>> account.guarantee, round(account.epsilon(), 2), round(account.epsilon_separate(), 2)
        ('proved', 2.13, 2.11)
        >>> for by_group in (account.guaranteed_by_group(), account.epsilon_by_group(), account.odometer_by_group(),
        ...                  account.approximate_by_group()):
        ...     print(round(by_group["women"], 2), round(by_group["men"], 2))
        2.13 2.13
        2.13 0.7
        2.91 0.98
        2.13 1.06
        >>> round(account.by_observer()["model"], 2), account.by_observer_and_group()["server"]
        (2.13, {'women': inf, 'men': inf})
        >>> round(account.after(0.5).epsilon(), 2)
        1.67
        >>> from fedfair.accounting.selection import Selection
        >>> account.record_held_out("test", multiplier=4.0)
        >>> account.record_selection("valid", Selection(multiplier=4.0, mean=10.0))
        >>> account.record_preprocessing(Preprocessed(multiplier=10.0, delta=1e-6))
        >>> round(account.held_out_epsilon("test"), 2), round(account.held_out_epsilon("valid"), 2)
        (1.01, 1.59)
        >>> round(account.preprocessing_epsilon(), 2), round(account.epsilon(), 2)
        (0.38, 2.18)
        >>> again = Account(account.groups, account.delta, accountant="rdp", preprocessing=account.preprocessing)
        >>> again.resume(account.log, account.held_out, account.unprotected)
        >>> again.with_files({"summary.csv": ()}).epsilon() == account.epsilon()
        True
    """

    def __init__(self, groups: Iterable[str], delta: float, trust: Trust = Trust.CENTRAL, clients: int = 1,
                 accountant: Accountant = "pld", nominal: str | None = None, protects: Unit = "record",
                 broadcasts: bool = False, *, secure_aggregation: bool = False, public: str | None = None,
                 budget: RenyiFilter | tuple[RenyiFilter, ...] | None = None, simulated: str | None = None,
                 size: int | None = None, preprocessing: Preprocessed | None = None) -> None:
        super().__init__(groups, trust, clients, protects, broadcasts, secure_aggregation=secure_aggregation, size=size,
                         preprocessing=preprocessing)
        self.delta, self.accountant, self.nominal, self.simulated = delta, accountant, nominal, simulated
        self.public, self.budget = public or PUBLIC[protects], budget

    def held_out_epsilon(self, part: str, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """Return what releases about a held-out part spent of one of its records' privacy.

        That is 0 without a release, and infinite if one had no noise. The parts are disjoint: none of these figures
        adds to another, but that of `LEFT_OUT` is part of every other figure, since it is about training records. A
        participant may have records in several parts: where participants are protected, this is part of every other
        figure.

        Args:
            part: "valid", "test" or `LEFT_OUT`.
            delta: Delta of the figure, strictly between 0 and 1; None for the ledger's.
            accountant: "pld" or "rdp"; None for the ledger's.
        """
        found = (self.held_out.get(part), self.selections.get(part))
        releases: Counter[Charged] = Counter(release for release in found if release)
        return epsilon(releases, self.delta if delta is None else delta, accountant or self.accountant)

    def preprocessing_epsilon(self) -> float:
        """Return the epsilon of private preprocessing alone, which is part of every figure; 0 without it."""
        if self.preprocessing is None:
            return 0.0
        release = {Release(1.0, self.preprocessing.multiplier): 1}
        return self._with_delta(self.delta, lambda left: epsilon(release, left, self.accountant))

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
        at = self._delta(delta)
        kept = {name: budget.epsilon(at) for name, budget in self.budgets.items() if self._within_budget(name)}
        return {name: min(guaranteed, kept.get(name, math.inf)) for name, guaranteed in fixed.items()}

    @property
    def budgets(self) -> dict[str, RenyiFilter]:
        """The filter of each group, by name; none without a budget."""
        if self.budget is None:
            return {}
        each = self.budget if isinstance(self.budget, tuple) else (self.budget,) * len(self.groups)
        return dict(zip(self.groups, each, strict=True))

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

    # How.

    def _delta(self, delta: float | None) -> float:
        """Return the default delta unless another is given."""
        return self.delta if delta is None else delta

    def _with_delta(self, delta: float, cost: Callable[[float], float]) -> float:
        """Return the cost at what private preprocessing leaves of a delta; infinite if it leaves nothing."""
        if self.preprocessing is None:
            return cost(delta)
        left = delta - self.preprocessing.delta
        return cost(left) if left > 0 else math.inf

    def _within_budget(self, name: str) -> bool:
        """Return whether a group's releases, with the noise that was really there, stayed within its budget."""
        releases = self.charged(lambda event, k: (event.certain(k),), self.groups.index(name))
        return all(map(self.budgets[name].holds, releases))

    def _by_group(self, charge: Charge, delta: float | None, accountant: Accountant | None,
                  observer: Observer | None = None) -> dict[str, float]:
        """Return epsilon of what each group is charged."""
        at = self._delta(delta)
        return self._largest(charge, lambda releases: self._with_delta(
            at, lambda left: epsilon(releases, left, accountant or self.accountant)), observer)

    def _largest(self, charge: Charge, cost: Callable[[Charges], float],
                 observer: Observer | None = None) -> dict[str, float]:
        """Return by group the largest cost over the clients that hold its records."""
        return {name: max(map(cost, self.charged(charge, k, observer)), default=0.0)
                for k, name in enumerate(self.groups)}


def _ratio(event: Event, group: int) -> float:
    """Return the group's clip norm over the largest, at one step."""
    spent = event.spent_multipliers[group]
    return event.multipliers[group] / spent if spent else 1.0
