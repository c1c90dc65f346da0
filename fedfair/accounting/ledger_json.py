"""An account as JSON: all that was released, with the figures at its delta.

Files outlive versions: an entry keeps its name and its kind, and a file without one that came later is still read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from fedfair.accounting.account import Account
from fedfair.accounting.contents import from_json, to_json
from fedfair.accounting.events import LEFT_OUT, Preprocessed
from fedfair.accounting.ledger_words import (
    held_out_data,
    left_to_trust,
    objections,
    preprocessing_data,
    reading,
    reason,
)
from fedfair.accounting.log import EventLog
from fedfair.accounting.odometer import RenyiFilter
from fedfair.accounting.selection import Selection
from fedfair.mechanisms.noise import Trust

_RELEASES = {"valid": "validation_release", "test": "test_release"}
_LEFT_OUT = "left_out_release"  # which few have

Kind = TypeVar("Kind", bound=Account)


def to_dict(account: Account) -> dict[str, Any]:
    """Return everything, with the figures at the default delta, for JSON."""
    held_out, learned = account.held_out, account.preprocessing
    return {
        "groups": list(account.groups), "delta": account.delta, "trust": account.trust.value,
        "clients": account.clients, "secure_aggregation": account.secure_aggregation, "accountant": account.accountant,
        "protects": account.protects, "broadcasts": account.broadcasts,
        "guarantee": account.guarantee, "guarantee_because": reason(account), "nominal_because": account.nominal,
        "simulated_because": account.simulated,
        "public_by_assumption": account.public, "left_to_trust": left_to_trust(account), "size": account.size,
        "budget": _written(account.budget),
        **_figures(account),
        "validation_data": held_out_data(account, "valid"), "test_data": held_out_data(account, "test"),
        "not_protected": account.unprotected,
        "files": to_json(account.files), "cannot_be_published_because": objections(account),
        "selections": {part: selection._asdict() for part, selection in account.selections.items()},
        **{entry: list(held_out[part]) if part in held_out else None for part, entry in _RELEASES.items()},
        **({_LEFT_OUT: list(held_out[LEFT_OUT])} if LEFT_OUT in held_out else {}),
        "preprocessing_data": preprocessing_data(account),
        "preprocessing_release": None if learned is None else list(learned),
        **account.log.to_dict(),
    }


def _figures(account: Account) -> dict[str, Any]:
    """Return every epsilon at the default delta."""
    return {
        "epsilon": account.epsilon(), "epsilon_rdp": account.epsilon(accountant="rdp"),
        "epsilon_counts_sampled_separately_rdp": account.epsilon_separate(accountant="rdp"),
        "spent_by_group": account.epsilon_by_group(), "spent_by_group_is": reading(account),
        "odometer_by_group": account.odometer_by_group(),
        "guaranteed_by_group": account.guaranteed_by_group(), "approximate_by_group": account.approximate_by_group(),
        "by_observer": account.by_observer(), "spent_by_observer_and_group": account.by_observer_and_group(),
    }


def from_dict(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Read the account that `to_dict` wrote, ready to go on; figures are computed anew from its events.

    Args:
        kind: Class of the account.
        values: What `to_dict` returned, possibly through JSON.
    """
    learned = values.get("preprocessing_release")
    account = kind(
        values["groups"], values["delta"], Trust(values["trust"]), values["clients"], values["accountant"],
        values["nominal_because"], values["protects"], values["broadcasts"],
        secure_aggregation=values["secure_aggregation"], public=values["public_by_assumption"],
        budget=_read(values["budget"]),
        simulated=values.get("simulated_because"),  # kept runs of before have no such entry
        size=values.get("size"), preprocessing=Preprocessed(*learned) if learned else None)
    held_out = {part: values[entry] for part, entry in {**_RELEASES, LEFT_OUT: _LEFT_OUT}.items()
                if values.get(entry)}  # kept runs of before have no test release
    account.resume(EventLog.from_dict(values), held_out, values["not_protected"])
    for part, entry in values.get("selections", {}).items():
        account.record_selection(part, Selection(**entry))
    return account.with_files(from_json(values.get("files", {})))


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
