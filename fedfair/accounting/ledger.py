"""The ledger: the events that really happened, and what they cost each group and each observer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Literal

from fedfair.accounting.composition import Accountant, epsilon
from fedfair.accounting.events import Event
from fedfair.accounting.release import Release
from fedfair.noise import Trust

Guarantee = Literal["proved", "nominal", "none"]


class Ledger:
    """Counts events, and composes them on demand.

    `groups` are the groups' names, `delta` the default delta. `trust` and `clients` say who added the noise.
    `nominal` is the reason why an epsilon would not be supported by a proof, or None.
    Public by assumption: the numbers of records, also by group and client, and the expected batch size.
    """

    def __init__(self, groups: Iterable[str], delta: float, trust: Trust = Trust.CENTRAL, clients: int = 1,
                 accountant: Accountant = "pld", nominal: str | None = None) -> None:
        self.groups, self.delta, self.trust, self.clients = tuple(groups), delta, trust, clients
        self.accountant, self.nominal = accountant, nominal
        self.events: Counter[Event] = Counter()

    def record(self, event: Event, steps: int = 1) -> None:
        """Enter `steps` equal events that have been released."""
        self.events[event] += steps

    def epsilon(self, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """What any record is guaranteed, against whoever gets the final model: the largest over groups and clients."""
        return max(self._by_group(lambda event, k: (event.guaranteed(k),), delta, accountant).values(), default=0.0)

    def epsilon_by_group(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[str, float]:
        """What a record of each group has spent under the bounds that were in force.

        Where bounds depend on earlier noisy outputs this is an odometer reading of adaptively composed releases, not a
        guarantee fixed in advance (Rogers et al. 2016); see `guaranteed_by_group`.
        """
        return self._by_group(lambda event, k: (event.spent(k),), delta, accountant)

    def guaranteed_by_group(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[str, float]:
        """What a record of each group was guaranteed in advance, whatever the bounds."""
        return self._by_group(lambda event, k: (event.guaranteed(k),), delta, accountant)

    def epsilon_separate(self, delta: float | None = None, accountant: Accountant | None = None) -> float:
        """Epsilon if gradients and counts were two separately sampled events, as the papers compose them."""
        return max(self._by_group(Event.separate, delta, accountant).values(), default=0.0)

    def approximate_by_group(self, delta: float | None = None, accountant: Accountant | None = None
                             ) -> dict[str, float]:
        """The papers' approximation `(C_k / max C) * epsilon` (Xu et al. 2021), with the mean ratio over the steps."""
        overall, steps = self.epsilon(delta, accountant), sum(self.events.values())
        ratios = [sum(count * _ratio(event, k) for event, count in self.events.items()) / max(steps, 1)
                  for k in range(len(self.groups))]
        return {name: ratio * overall for name, ratio in zip(self.groups, ratios, strict=True)}

    def by_observer(self, delta: float | None = None, accountant: Accountant | None = None) -> dict[str, float]:
        """Epsilon against whoever gets the final model, against the server, and against another client.

        The server sees unnoised sums under central trust, and with distributed noise unless the sums are securely
        aggregated, which this simulation does not do; other clients see every model on the way, and can take their own
        share of distributed noise away. Local epochs and local noise are protected before they leave the client.
        """
        model = self.epsilon(delta, accountant)
        before_the_server = all(event.client is not None for event in self.events)
        local = before_the_server or self.trust is Trust.LOCAL
        client = model
        if self.trust is Trust.DISTRIBUTED and not local:
            left = math.sqrt(1 - 1 / self.clients)

            def less(event: Event, k: int) -> tuple[Release, ...]:
                rate, multiplier = event.guaranteed(k)
                return (Release(rate, left * multiplier),)

            client = max(self._by_group(less, delta, accountant).values(), default=0.0)
        return {"model": model, "server": model if local else math.inf, "client": client}

    @property
    def guarantee(self) -> Guarantee:
        """"proved", "nominal" (no proof supports the figure) or "none" (epsilon is infinite)."""
        if not math.isfinite(self.epsilon()):
            return "none"
        return "nominal" if self.nominal else "proved"

    def to_dict(self) -> dict[str, Any]:
        """Everything, with the figures at the default delta, for JSON."""
        return {
            "groups": list(self.groups), "delta": self.delta, "trust": self.trust.value, "clients": self.clients,
            "accountant": self.accountant, "guarantee": self.guarantee, "nominal_because": self.nominal,
            "public_by_assumption": "numbers of records by group and client, expected batch size",
            "epsilon": self.epsilon(), "epsilon_rdp": self.epsilon(accountant="rdp"),
            "epsilon_counts_sampled_separately_rdp": self.epsilon_separate(accountant="rdp"),
            "spent_by_group": self.epsilon_by_group(), "spent_by_group_is": self.reading(),
            "guaranteed_by_group": self.guaranteed_by_group(), "approximate_by_group": self.approximate_by_group(),
            "by_observer": self.by_observer(),
            "events": [{**asdict(event), "steps": steps} for event, steps in self.events.items()],
        }

    def reading(self) -> str:
        """What the figures of `epsilon_by_group` are, in words."""
        adaptive = any(event.spent_multipliers != event.multipliers for event in self.events)
        return "an odometer reading: the bounds depended on earlier outputs" if adaptive else "guaranteed in advance"

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` wrote; figures are computed anew from its events."""
        ledger = Ledger(values["groups"], values["delta"], Trust(values["trust"]), values["clients"],
                        values["accountant"], values["nominal_because"])
        for event in values["events"]:
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in event.items()}
            steps = int(fields.pop("steps"))
            ledger.record(Event(**fields), steps)
        return ledger

    def _by_group(self, charged: Callable[[Event, int], tuple[Release, ...]], delta: float | None,
                  accountant: Accountant | None) -> dict[str, float]:
        """Epsilon of what each group is charged: the largest over the clients that hold its records."""
        clients: set[int | None] = {event.client for event in self.events if event.client is not None} or {None}
        result = dict.fromkeys(self.groups, 0.0)
        for k, name in enumerate(self.groups):
            for client in clients:
                releases: Counter[Release] = Counter()
                for event, steps in self.events.items():
                    if event.client in (None, client):
                        for release in charged(event, k):
                            releases[release] += steps
                result[name] = max(result[name], epsilon(releases, self.delta if delta is None else delta,
                                                             accountant or self.accountant))
        return result


def _ratio(event: Event, group: int) -> float:
    """The group's clip norm over the largest, at one step."""
    spent = event.spent_multipliers[group]
    return event.multipliers[group] / spent if spent else 1.0
