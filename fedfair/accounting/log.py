"""The log of released steps: each exactly once, in order, also over a run that is resumed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedfair.accounting.events import Event


@dataclass(frozen=True)
class Entry:
    """Entry of `steps` equal events from step `first` on; `attempt` is how often the run had gone back by then."""

    event: Event
    first: int
    steps: int
    attempt: int = 0


class EventLog:
    """Released events by step number, with separate numbers for every client that trains alone (`Event.client`).

    A run that resumes from a checkpoint with model and log of the same step simply goes on. If it made releases after
    the checkpoint and repeats them with fresh noise, somebody may have seen both: keep this log, and call `rewind`.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._counts: Counter[Event] = Counter()
        self._next: dict[int | None, int] = {}
        self._latest: dict[int | None, int] = {}  # index of each client's latest entry
        self._attempt = 0

    def record(self, event: Event, steps: int, first: int | None) -> None:
        """Enter `steps` events from `first` on, by default after the last step of the event's client.

        Raises `ValueError` if a step is entered a second time, or one before it is missing.
        """
        expected = self._next.get(event.client, 0)
        first = expected if first is None else first
        if steps < 0:
            raise ValueError(f"{steps} steps cannot be recorded: take a number from 0 up")
        if first < expected:
            raise ValueError(f"step {first} is already in the ledger: each is recorded once; if the run went back and "
                             f"releases it again with fresh noise, call rewind({first}) first: both are then charged")
        if first > expected:
            raise ValueError(f"step {first} follows step {expected - 1} in the ledger: the steps between are missing; "
                             f"record them, or call skip({expected}, {first - expected}) if they released nothing")
        self._next[event.client] = first + steps
        if steps:
            self._enter(Entry(event, first, steps, self._attempt))

    def skip(self, first: int, steps: int, client: int | None = None) -> None:
        """Pass over steps that released nothing; an empty batch is not one of them, since its noise is released.

        Raises `ValueError` if `first` is not the next step.
        """
        expected = self._next.get(client, 0)
        if first != expected:
            raise ValueError(f"step {first} cannot be skipped: the next step is {expected}")
        self._next[client] = first + steps

    def rewind(self, step: int, client: int | None = None) -> None:
        """Go back to `step` of a client; later releases stay in the log, and may be entered again.

        Raises `ValueError` for steps of balls in bins: records would be met in the same step again, and the sum of two
        releases on one batch is accounted for as little as two halves of an epoch.
        """
        if any(entry.event.bins for entry in self.entries if entry.event.client == client):
            raise ValueError("steps of balls in bins cannot be released again: that is not accounted for; start the "
                             'run anew, or take sampling = "poisson"')
        self._attempt += 1
        self._next[client] = min(self._next.get(client, 0), step)

    def counted(self) -> Counter[Event]:
        """Count how often each event was released."""
        return self._counts.copy()

    def epochs(self) -> Iterator[Counter[Event]]:
        """Yield the steps of each epoch of balls in bins that was begun: how often each event was released."""
        begun: dict[tuple[int | None, int, int], Counter[Event]] = {}
        for entry in self.entries:
            if entry.event.bins is not None:
                for step in range(entry.first, entry.first + entry.steps):
                    epoch = entry.event.client, entry.event.bins, step // entry.event.bins
                    begun.setdefault(epoch, Counter())[entry.event] += 1
        yield from begun.values()

    def prefix(self, share: float) -> EventLog:
        """Return the log as it stood when a share (0 to 1) of every client's steps had been released.

        Releases from before the log went back are included.
        """
        ends = dict(self._next)
        for entry in self.entries:
            client = entry.event.client
            ends[client] = max(ends[client], entry.first + entry.steps)
        log = EventLog()
        log._attempt, log._next = self._attempt, {client: round(share * end) for client, end in ends.items()}
        for entry in self.entries:
            steps = min(entry.steps, log._next[entry.event.client] - entry.first)
            if steps > 0:
                log._enter(replace(entry, steps=steps))
        return log

    def in_advance(self) -> EventLog:
        """Return the log with every event as it was known in advance (see `Event.in_advance`).

        Where bounds followed earlier outputs, and every step made an entry, that leaves a few entries.
        """
        log = EventLog()
        for entry in self.entries:
            log._enter(replace(entry, event=entry.event.in_advance()))
        log._attempt, log._next = self._attempt, dict(self._next)
        return log

    def to_dict(self) -> dict[str, Any]:
        """Return all entries and the next steps, for JSON."""
        # Every checkpoint calls this; `asdict`, which copies every tuple, takes 20 times as long.
        events = [{"first": e.first, "steps": e.steps, "attempt": e.attempt, **vars(e.event)} for e in self.entries]
        return {"attempt": self._attempt, "next_step_by_client": list(self._next.items()), "events": events}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> EventLog:
        """Read the log that `to_dict` wrote, ready to go on after its last step.

        Infinite multipliers, of groups of which nothing was released, may have become None: JSON has no infinity.
        """
        log = EventLog()
        for value in values["events"]:
            fields: dict[str, Any] = {name: _from_json(field) for name, field in value.items()}
            first, steps, attempt = (int(fields.pop(name)) for name in ("first", "steps", "attempt"))
            log._enter(Entry(Event(**fields), first, steps, attempt))
        log._attempt = int(values["attempt"])
        log._next = {client: int(step) for client, step in values["next_step_by_client"]}
        return log

    def _enter(self, entry: Entry) -> None:
        """Keep an entry; merge it with its client's latest one if it continues that."""
        self._counts[entry.event] += entry.steps
        client = entry.event.client
        index = self._latest.get(client)
        if index is not None:
            last = self.entries[index]
            if (last.event, last.first + last.steps, last.attempt) == (entry.event, entry.first, entry.attempt):
                self.entries[index] = Entry(last.event, last.first, last.steps + entry.steps, last.attempt)
                return
        self._latest[client] = len(self.entries)
        self.entries.append(entry)


def _from_json(field: Any) -> Any:
    """Return a field of an event from JSON: a list as a tuple, in which None becomes infinity."""
    if not isinstance(field, list | tuple):
        return field
    return tuple(math.inf if value is None else value for value in field)
