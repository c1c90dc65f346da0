"""Rows of a model's embeddings that are never trained: those of words that only fill texts up, at `padding_idx`.

PyTorch gives such a row no gradient, whatever the records hold, so a sum of gradients holds nothing there but noise.
Which rows these are follows from the model alone. They are set to zero in a sum that has its noise already, so that
what leaves is the same number for all records, also where a model's own `forward` uses the row in another way.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from fedfair.gradients.layer_probe import trained_parameters
from fedfair.gradients.layers import Gradients


def padding_rows(model: nn.Module) -> dict[str, int]:
    """Return the row that is not trained of each parameter that has one, by the parameter's name.

    A weight that an embedding shares with another layer, for example the last one, is trained as a whole.

    Args:
        model: A model with a parameter that requires a gradient.

    Examples:
        >>> padding_rows(nn.Sequential(nn.Embedding(10, 2, padding_idx=3), nn.Linear(2, 2)))
        {'0.weight': 3}
    """
    _, owned = trained_parameters(model)
    found: dict[str, set[int | None]] = {}
    for layer, names in owned.items():
        row = layer.padding_idx if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else None
        for name in names.values():
            found.setdefault(name, set()).add(row)
    return {name: row for name, (row, *others) in found.items() if row is not None and not others}


def without_rows(sums: Mapping[str, Tensor], rows: Mapping[str, int]) -> Gradients:
    """Return noisy sums with zeros in some rows.

    Args:
        sums: Tensors by name; they stay as they are.
        rows: Number of the row, for names of some of them.

    Examples:
        >>> import torch
        >>> without_rows({"a": torch.ones(2, 3), "b": torch.ones(2)}, {"a": 1})
        {'a': tensor([[1., 1., 1.],
                [0., 0., 0.]]), 'b': tensor([1., 1.])}
    """
    left = dict(sums)
    for name, row in rows.items():
        left[name] = sums[name].clone()
        left[name][row] = 0
    return left
