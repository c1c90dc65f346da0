"""From the events of a run to epsilon: what was released, what it costs, and how much noise a target needs."""

from fedfair.accounting.calibration import calibrate
from fedfair.accounting.composition import ACCOUNTANTS, Accountant, epsilon
from fedfair.accounting.events import Event, noise_present, spent_multipliers
from fedfair.accounting.ledger import Ledger
from fedfair.accounting.observers import OBSERVERS, Observer
from fedfair.accounting.odometer import RenyiFilter
from fedfair.accounting.release import Release
from fedfair.unit import Unit

__all__ = ["ACCOUNTANTS", "OBSERVERS", "Accountant", "Event", "Ledger", "Observer", "Release", "RenyiFilter",
           "Unit", "calibrate", "epsilon", "noise_present", "spent_multipliers"]
