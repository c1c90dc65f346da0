"""What does each group pay for privacy, which method closes the gap, and is the printed epsilon true.

This package holds what a node knows and does, and the vocabulary that nodes and server share. Its face, imported when
it is first asked for: `per_example`, `ClipRule`, `GroupedDataset`, `Ledger`, `train_privately`.
"""

from __future__ import annotations

from fedfair.plugins.lazy import lazy

TYPE_CHECKING = False  # as typing's, which takes as long to import as all the rest
if TYPE_CHECKING:
    from fedfair.accounting.ledger import Ledger
    from fedfair.datasets.grouped import GroupedDataset
    from fedfair.gradients.probe import per_example
    from fedfair.mechanisms.clipping import ClipRule
    from fedfair.node.private_training import train_privately

__all__ = ["ClipRule", "GroupedDataset", "Ledger", "per_example", "train_privately"]

__getattr__ = lazy(__name__, {
    "ClipRule": "fedfair.mechanisms.clipping",
    "GroupedDataset": "fedfair.datasets.grouped",
    "Ledger": "fedfair.accounting.ledger",
    "per_example": "fedfair.gradients.probe",
    "train_privately": "fedfair.node.private_training",
})
