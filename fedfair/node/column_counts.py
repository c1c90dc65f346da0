"""What a node sends of its columns for private preprocessing: noisy histograms of numbers, and frequent categories.

A record adds 1 to one count of every column, so it moves the counts of m columns by at most sqrt(m). A participant adds
1 as well: to the numbers of a column in shares, and to the category that most of its records have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from fedfair.accounting.events import Unit
from fedfair.datasets import GroupedDataset
from fedfair.datasets.features.cells import category_counts
from fedfair.mechanisms import histograms
from fedfair.mechanisms import noise as noises
from fedfair.mechanisms.marks import releases
from fedfair.mechanisms.noise import NoiseName
from fedfair.mechanisms.randomness import Source, source
from fedfair.node.node import Node
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.messages import pack

NOISE, TEXTS, COUNTS = "column counts", "categories", "counts"


@dataclass(frozen=True)
class Counting:
    """How columns are counted.

    Args:
        numbers: Columns whose numbers are counted by cell.
        categories: Columns whose categories are counted.
        unit: What adds 1 to one count of every column.
        deviation: Standard deviation of the noise on a count of categories; that on numbers is in proportion.
        share: Share of it that every client adds to its numbers.
        threshold: Noisy count that a client's category must exceed, or None if the server counts them.
        noise: How noise is sampled.
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    unit: Unit
    deviation: float
    share: float
    threshold: float | None
    noise: NoiseName

    @staticmethod
    def asked(options: ConfigRecord) -> Counting:
        """Return what the options of a request ask for."""
        numbers, categories = (tuple(cast(list[str], options[name])) for name in ("numbers", "categories"))
        return Counting(numbers, categories, cast(Unit, options["unit"]), cast(float, options["deviation"]),
                        cast(float, options["share"]), cast(float, options["threshold"]) or None,
                        cast(NoiseName, options["noise"]))


@exchange("query")
def send_column_counts(node: Node, request: Request) -> RecordDict:
    """Send noisy histograms of numbers, `[columns, cells]`, and categories, whose counts are noisy or the server's.

    Under central trust the counts of categories are exact, and the server adds the noise; else each client keeps what
    exceeds the threshold with its own full noise, and only these names leave it.
    """
    asked, noise_key = Counting.asked(request.options), cast(str, request.options["key"]) or None
    sums = torch.zeros(len(asked.numbers), histograms.CELLS, dtype=torch.float64)
    found: dict[str, dict[str, float]] = {column: {} for column in asked.categories}
    for number in node.clients:
        data = node.clients.training(number)
        sums += _noisy_numbers(data, asked, source(noise_key, NOISE, number + 1))
        for column, counts in _categories(data, asked, source(noise_key, TEXTS, number + 1)).items():
            for name, count in counts.items():
                found[column][name] = found[column].get(name, 0.0) + count
    records = RecordDict({"sums": pack({"numbers": sums}), TEXTS: ConfigRecord(), COUNTS: ConfigRecord()})
    for column, part in found.items():
        records.config_records[TEXTS][column] = list(part)
        records.config_records[COUNTS][column] = list(part.values())
    return records


@releases
def keep_frequent(counts: Mapping[str, float], deviation: float, threshold: float, noise: NoiseName, draws: Source
                  ) -> dict[str, float]:
    """Return the categories whose noisy count exceeds the threshold, with 1 each.

    Args:
        counts: Exact counts, above 0.
        deviation: Standard deviation of the noise.
        threshold: Count to exceed; so high that a single record's own category hardly ever does.
        noise: How noise is sampled.
        draws: Where noise comes from.
    """
    if not counts:
        return {}
    exact = torch.tensor(list(counts.values()), dtype=torch.float64)
    noisy = noises.add_noise(noise, {"counts": exact}, deviation, draws)["counts"]
    return {name: 1.0 for name, count in zip(counts, noisy.tolist(), strict=True) if count > threshold}


def _noisy_numbers(data: GroupedDataset, asked: Counting, draws: Source) -> Tensor:
    """Return one client's histograms of numbers, `[columns, cells]`, with its share of the noise."""
    counts = torch.zeros(len(asked.numbers), histograms.CELLS, dtype=torch.float64)
    for row, column in zip(counts, asked.numbers, strict=True):
        values = data.x[:, data.columns.index(column)]
        placed = histograms.cells(values[~values.isnan()])
        row += torch.bincount(placed, minlength=histograms.CELLS)
    if asked.unit == "participant":
        counts /= max(len(data), 1)
    deviation = asked.share * asked.deviation * histograms.sensitivity(histograms.CELLS)
    return histograms.add_noise(asked.noise, counts, deviation, draws) if asked.numbers else counts


def _categories(data: GroupedDataset, asked: Counting, draws: Source) -> dict[str, dict[str, float]]:
    """Return by column what one client sends of its categories: exact counts, or those that are frequent."""
    counted = {}
    for column in asked.categories:
        counts = category_counts(data, column)
        if asked.unit == "participant" and counts:
            counts = {max(counts, key=counts.__getitem__): 1.0}
        counted[column] = counts if asked.threshold is None else keep_frequent(
            counts, asked.deviation, asked.threshold, asked.noise, draws)
    return counted
