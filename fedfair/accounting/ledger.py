"""The ledger of a run, as users, notebooks and files read it: an account that has words and goes to JSON and back.

Files outlive versions: an entry keeps its name and its kind, and a file without one that came later is still read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedfair.accounting import ledger_words as words
from fedfair.accounting.account import Account
from fedfair.accounting.contents import from_json, to_json
from fedfair.accounting.events import LEFT_OUT, Preprocessed
from fedfair.accounting.log import EventLog
from fedfair.accounting.odometer import RenyiFilter
from fedfair.accounting.selection import Selection
from fedfair.mechanisms.noise import Trust

_RELEASES = {"valid": "validation_release", "test": "test_release"}
_LEFT_OUT = "left_out_release"  # which few have


class Ledger(Account):
    """An account that says why its guarantee holds, and that goes to JSON and back; see `Account` for the figures.

    Examples:
        >>> from fedfair.accounting.events import Event
        >>> ledger = Ledger(("women", "men"), delta=1e-5, accountant="rdp", nominal="scaled by the records")
        >>> ledger.record(Event((0.01, 0.01), multipliers=(1.0, 1.0), spent_multipliers=(1.0, 2.0)), steps=1000)
        >>> ledger.guarantee, ledger.reason, round(ledger.to_dict()["epsilon"], 2)
        ('nominal', 'scaled by the records', 2.1)
        >>> Ledger.from_dict(ledger.to_dict()).epsilon() == ledger.epsilon()
        True
    """

    @property
    def reason(self) -> str:
        """Why the guarantee is of this kind, in words: every reason, where there are several."""
        return words.reason(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, with the figures at the default delta, for JSON."""
        held_out, learned = self.held_out, self.preprocessing
        return {
            "groups": list(self.groups), "delta": self.delta, "trust": self.trust.value,
            "clients": self.clients, "secure_aggregation": self.secure_aggregation, "accountant": self.accountant,
            "protects": self.protects, "broadcasts": self.broadcasts,
            "guarantee": self.guarantee, "guarantee_because": self.reason, "nominal_because": self.nominal,
            "simulated_because": self.simulated,
            "public_by_assumption": self.public, "left_to_trust": words.left_to_trust(self), "size": self.size,
            "budget": _written(self.budget),
            **self._figures(),
            "validation_data": words.held_out_data(self, "valid"), "test_data": words.held_out_data(self, "test"),
            "not_protected": self.unprotected,
            "files": to_json(self.files), "cannot_be_published_because": words.objections(self),
            "selections": {part: selection._asdict() for part, selection in self.selections.items()},
            **{entry: list(held_out[part]) if part in held_out else None for part, entry in _RELEASES.items()},
            **({_LEFT_OUT: list(held_out[LEFT_OUT])} if LEFT_OUT in held_out else {}),
            "preprocessing_data": words.preprocessing_data(self),
            "preprocessing_release": None if learned is None else list(learned),
            **self.log.to_dict(),
        }

    def _figures(self) -> dict[str, Any]:
        """Return every epsilon at the default delta."""
        return {
            "epsilon": self.epsilon(), "epsilon_rdp": self.epsilon(accountant="rdp"),
            "epsilon_counts_sampled_separately_rdp": self.epsilon_separate(accountant="rdp"),
            "spent_by_group": self.epsilon_by_group(), "spent_by_group_is": words.reading(self),
            "odometer_by_group": self.odometer_by_group(),
            "guaranteed_by_group": self.guaranteed_by_group(), "approximate_by_group": self.approximate_by_group(),
            "by_observer": self.by_observer(), "spent_by_observer_and_group": self.by_observer_and_group(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Ledger:
        """Read the ledger that `to_dict` wrote, ready to go on; figures are computed anew from its events.

        Args:
            values: What `to_dict` returned, possibly through JSON.
        """
        learned = values.get("preprocessing_release")
        ledger = cls(
            values["groups"], values["delta"], Trust(values["trust"]), values["clients"], values["accountant"],
            values["nominal_because"], values["protects"], values["broadcasts"],
            secure_aggregation=values["secure_aggregation"], public=values["public_by_assumption"],
            budget=_read(values["budget"]),
            simulated=values.get("simulated_because"),  # kept runs of before have no such entry
            size=values.get("size"), preprocessing=Preprocessed(*learned) if learned else None)
        held_out = {part: values[entry] for part, entry in {**_RELEASES, LEFT_OUT: _LEFT_OUT}.items()
                    if values.get(entry)}  # kept runs of before have no test release
        ledger.resume(EventLog.from_dict(values), held_out, values["not_protected"])
        for part, entry in values.get("selections", {}).items():
            ledger.record_selection(part, Selection(**entry))
        return ledger.with_files(from_json(values.get("files", {})))

    def _repr_html_(self) -> str:
        """Show epsilon by group and observer, for notebooks."""
        return words.html(self)


def _written(budget: RenyiFilter | tuple[RenyiFilter, ...] | None) -> dict[str, Any] | list[dict[str, Any]] | None:
    """Return a budget as JSON has it, one for each group as a list."""
    if isinstance(budget, tuple):
        return [asdict(each) for each in budget]
    return asdict(budget) if budget else None


def _read(budget: dict[str, Any] | list[dict[str, Any]] | None) -> RenyiFilter | tuple[RenyiFilter, ...] | None:
    """Return a budget that `_written` wrote."""
    if isinstance(budget, list):
        return tuple(RenyiFilter(**each) for each in budget)
    return RenyiFilter(**budget) if budget else None
