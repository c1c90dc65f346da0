"""What does each group pay for privacy, which method closes the gap, and is the printed epsilon true.

This package holds what a node knows and does, and the vocabulary that nodes and server share. Its face, imported when
it is first asked for: `FairPrivateClassifier`, `per_example`, `ClipRule`, `GroupedDataset`, `Ledger`,
`train_privately`, `PrivateTraining`. Two of them come from above by name, `simulations` and `strategies`; their types,
as those of the others, are in `__init__.pyi`.
"""

from __future__ import annotations

from fedfair.plugins.lazy import lazy
from fedfair.plugins.shared_names import share
from fedfair.plugins.threads import sleep_while_waiting

sleep_while_waiting()
share("strategies", "simulations")

__all__ = ["ClipRule", "FairPrivateClassifier", "GroupedDataset", "Ledger", "PrivateTraining", "per_example",
           "train_privately"]

__getattr__ = lazy(__name__, {
    "ClipRule": "fedfair.mechanisms.clipping",
    "FairPrivateClassifier": "simulations.fitting.classifier",
    "GroupedDataset": "fedfair.datasets.grouped",
    "Ledger": "fedfair.accounting.ledger",
    "PrivateTraining": "strategies.server.existing_app",
    "per_example": "fedfair.gradients.probe",
    "train_privately": "fedfair.node.private_training",
})
