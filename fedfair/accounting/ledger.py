"""The ledger of a run, as users, notebooks and files read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedfair.accounting import ledger_json, ledger_words
from fedfair.accounting.account import Account


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
        return ledger_words.reason(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, with the figures at the default delta, for JSON."""
        return ledger_json.to_dict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Ledger:
        """Read the ledger that `to_dict` wrote, ready to go on; figures are computed anew from its events.

        Args:
            values: What `to_dict` returned, possibly through JSON.
        """
        return ledger_json.from_dict(cls, values)

    def _repr_html_(self) -> str:
        """Show epsilon by group and observer, for notebooks."""
        return ledger_words.html(self)
