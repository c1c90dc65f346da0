"""The gradients of a batch, which may be all records of a table: then their features are never in memory together."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import torch
from torch import Tensor, nn

from fedfair.datasets.features.cells import Cells
from fedfair.datasets.features.places import value_of_one
from fedfair.gradients.layer_probe import Loss, Probe
from fedfair.gradients.looked_up import LookedUpProbe, Ones
from fedfair.gradients.passes import UnreadableError
from fedfair.gradients.portioned import PortionedProbe
from fedfair.gradients.probe import per_example

MADE_TOGETHER = 2**14
"""Records of cells whose features and gradients may be in memory at once."""


def probe_of(model: nn.Module, loss: Loss, x: Tensor, targets: Tensor) -> Probe:
    """Return the gradients of a batch: those of one linear layer by lookups, those of other models in portions.

    Lookups round otherwise than features written out. With huge weights that cancel, any record then has another
    gradient: so the model and its features decide on them, and never the number of records, which one record changes.

    Args:
        model: The model.
        loss: From outputs `[n, ...]` and targets to one loss per example, `[n]`.
        x: Its inputs, `[n, ...]`, which may be cells of a table whose features are not made yet.
        targets: Targets, `[n, ...]`.

    Raises:
        ValueError: If the model mixes examples, see `per_example`.
    """
    if not isinstance(x, Cells):
        return per_example(model, loss, x, targets)
    rows = rows_of_ones(x)
    if rows is not None and len(x):
        with suppress(UnreadableError):
            return LookedUpProbe(model, loss, rows, targets)
    if len(x) <= MADE_TOGETHER:
        return per_example(model, loss, x.made(), targets)  # `vmap`, which some models need, takes no cells
    return PortionedProbe([partial(probe_of, model, loss, x.rows(part), targets[part])
                           for part in torch.split(torch.arange(len(x)), MADE_TOGETHER)])


def rows_of_ones(cells: Cells) -> Ones | None:
    """Return the rows of records whose features are bounded ones; None for others.

    Args:
        cells: Their features.
    """
    ones, bounding, features = cells.ones(), cells.encoding.bounding, len(cells.encoding.features)
    if ones is None or bounding is None:
        return None
    return Ones(ones, value_of_one((ones < features).sum(1), bounding), features, bounding.last)
