"""`fedfair` with the 500 records of class 8, and the initial weights, of Bagdasaryan and Shmatikov's code.

Their code seeds Python and PyTorch with 5, shuffles the records of classes 0 to 8 one after the other, keeps the first
500 of class 8, and seeds PyTorch with 5 once more before it makes the network.

    python as_bagdasaryan.py run --preset xu2021 --dataset mnist --strategy dpsgd --set clip_norm=5 --set eval_every=5
"""

from __future__ import annotations

import random
from dataclasses import replace
from unittest.mock import patch

import torch
from torch import nn

from fedfair.datasets.grouped import Parts
from fedfair.models import MODELS
from simulations.cli import app

SEED = 5


def reduced(parts: Parts, imbalance: str, seed: int) -> Parts:
    """The parts of MNIST with the records of class 8 that their code draws; raises `ValueError` but for "8:500"."""
    if imbalance != "8:500":
        raise ValueError(f"imbalance is {imbalance!r}: their draw is known of 8:500")
    train = parts.train
    shuffle, dropped = random.Random(SEED), set[int]()  # noqa: S311 - their generator
    in_order = torch.argsort(train.records)
    for digit in range(9):
        rows = in_order[train.y[in_order] == digit].tolist()
        shuffle.shuffle(rows)
        dropped = set(rows[500:])
    kept = [row for row in range(len(train)) if row not in dropped]
    return replace(parts, train=train.take(torch.tensor(kept)))


def built(name: str, hidden: tuple[int, ...], shape: torch.Size, classes: int, seed: int, dtype: torch.dtype
          ) -> nn.Module:
    """The model with the initial weights that PyTorch draws from their seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return MODELS[name](shape, hidden, classes).to(dtype)


if __name__ == "__main__":
    with patch("fedfair.task.reduce_group", reduced), patch("fedfair.models.build", built):
        app()
