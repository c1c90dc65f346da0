"""What `fedfair` offers by name, for type checkers and editors; `__init__.py` imports each when it is asked for."""

from fedfair.accounting.ledger import Ledger as Ledger
from fedfair.datasets.grouped import GroupedDataset as GroupedDataset
from fedfair.gradients.probe import per_example as per_example
from fedfair.mechanisms.clipping import ClipRule as ClipRule
from fedfair.node.private_training import train_privately as train_privately
from simulations.fitting.classifier import FairPrivateClassifier as FairPrivateClassifier
from strategies.server.existing_app import PrivateTraining as PrivateTraining

__all__ = ["ClipRule", "FairPrivateClassifier", "GroupedDataset", "Ledger", "PrivateTraining", "per_example",
           "train_privately"]
