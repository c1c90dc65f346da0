"""From the events of a run to epsilon: what was released, what it costs, and how much noise a target needs."""

from fedfair.accounting.calibration import calibrate
from fedfair.accounting.composition import ACCOUNTANTS, Accountant, epsilon
from fedfair.accounting.events import Event
from fedfair.accounting.ledger import Ledger
from fedfair.accounting.release import Release

__all__ = ["ACCOUNTANTS", "Accountant", "Event", "Ledger", "Release", "calibrate", "epsilon"]
