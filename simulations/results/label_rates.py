"""How frequent each label is in each group of a data set, and which groups are small."""

from __future__ import annotations

import torch
from rich.table import Table
from rich.text import Text

from fedfair.datasets.grouped import GroupedDataset, Parts
from fedfair.datasets.names import visible

SMALL = 30
"""Records of a group, or less, of which no figure says much."""
_CLASSES = 6  # are shown


def label_rates(parts: Parts) -> Table:
    """Lay out the share of each label in each group, over all parts."""
    counts = sum(_counts(data) for _, data in parts)
    labels = parts.train.labels[:_CLASSES]
    table = Table(title="Labels by group")
    table.add_column("group")
    for heading in ("records", *labels):
        table.add_column(Text(visible(heading)), justify="right")
    for name, row in zip(parts.train.names, torch.as_tensor(counts).tolist(), strict=True):
        shares = [f"{count / max(1, sum(row)):.1%}" for count in row[:_CLASSES]]
        table.add_row(Text(visible(name)), f"{sum(row):,}", *shares)
    return table


def small_groups(parts: Parts) -> list[str]:
    """Return a sentence for each part that has groups of fewer than `SMALL` records; an empty part is not looked at."""
    sentences = []
    for part, data in parts:
        sizes = zip(data.names, data.group_sizes(), strict=True)
        small = [f"{name} ({size:,})" for name, size in sizes if size < SMALL]
        if small and len(data):
            sentences.append(f"few records in the {part} part, below {SMALL}: {', '.join(small)}: figures of these "
                             "groups say little")
    return sentences


def _counts(data: GroupedDataset) -> torch.Tensor:
    """Return the number of records of each group and label, `[groups, classes]`."""
    cells = torch.bincount(data.group * data.classes + data.y, minlength=len(data.names) * data.classes)
    return cells.view(len(data.names), data.classes)
