"""From the events of a run to epsilon: what was released, what it costs, and how much noise a target needs."""

from fedfair.accounting.calibration import calibrate
from fedfair.accounting.composition import ACCOUNTANTS, Accountant, Release, epsilon
from fedfair.accounting.events import Event
from fedfair.accounting.ledger import Ledger, Unit

__all__ = ["ACCOUNTANTS", "Accountant", "Event", "Ledger", "Release", "Unit", "calibrate", "epsilon"]
