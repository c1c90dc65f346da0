"""From the events of a run to epsilon: what was released, what it costs, and how much noise a target needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedfair.plugins.lazy import lazy

if TYPE_CHECKING:
    from fedfair.accounting.composition import ACCOUNTANTS, Accountant, calibrate, epsilon, multiplier_of
    from fedfair.accounting.events import (
        LEFT_OUT,
        OBSERVERS,
        Event,
        Observer,
        Release,
        Unit,
        noise_present,
        spent_multipliers,
    )
    from fedfair.accounting.ledger import Ledger
    from fedfair.accounting.odometer import RenyiFilter

__all__ = ["ACCOUNTANTS", "LEFT_OUT", "OBSERVERS", "Accountant", "Event", "Ledger", "Observer", "Release",
           "RenyiFilter", "Unit", "calibrate", "epsilon", "multiplier_of", "noise_present", "spent_multipliers"]

_MODULES = {
    "composition": ("ACCOUNTANTS", "Accountant", "calibrate", "epsilon", "multiplier_of"),
    "events": ("LEFT_OUT", "OBSERVERS", "Event", "Observer", "Release", "Unit", "noise_present", "spent_multipliers"),
    "ledger": ("Ledger",),
    "odometer": ("RenyiFilter",),
}
__getattr__ = lazy(__name__, {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names})
