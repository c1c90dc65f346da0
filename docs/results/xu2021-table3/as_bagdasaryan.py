"""DPSGD at C = 5 with the 500 records of class 8, and the initial weights, of Bagdasaryan and Shmatikov's code.

Their code seeds Python and PyTorch with 5, shuffles the records of classes 0 to 8 one after the other, keeps the first
500 of class 8, and seeds PyTorch with 5 once more before it makes the network. `python as_bagdasaryan.py` takes a
quarter of an hour on one core; everything is in one process, the only one in which the two functions are replaced.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import torch
from rich.console import Console
from torch import nn

from fedfair.datasets.grouped import Parts
from fedfair.models.published import MODELS
from simulations import run
from simulations.plans.compare import experiments
from simulations.results.result import compared
from simulations.results.terminal_table import results_table

SEED, DIGIT, KEPT = 5, 8, 500


def reduced(parts: Parts, imbalance: str, seed: int) -> Parts:
    """MNIST's parts with the records of class 8 that their code draws, whatever `seed`; raises `ValueError` where
    `imbalance` is not 8:500.
    """
    if imbalance != f"{DIGIT}:{KEPT}":
        raise ValueError(f"imbalance is {imbalance!r}, but their draw is one of {DIGIT}:{KEPT}")
    shuffle = random.Random(SEED).shuffle  # noqa: S311 - their generator
    in_order = torch.argsort(parts.train.records)
    shuffled = [in_order[parts.train.y[in_order] == digit].tolist() for digit in range(DIGIT + 1)]
    for rows in shuffled:
        shuffle(rows)
    kept = torch.ones(len(parts.train), dtype=torch.bool)
    kept[shuffled[DIGIT][KEPT:]] = False
    return replace(parts, train=parts.train.take(kept.nonzero().flatten()))


def built(name: str, hidden: Sequence[int], shape: Sequence[int], classes: int, seed: int, dtype: torch.dtype
          ) -> nn.Module:
    """Build the model for examples of `shape` with the initial weights of their seed, whatever `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return MODELS[name](shape, hidden, classes).to(dtype)


if __name__ == "__main__":
    experiment, = experiments(["dpsgd"], [0], "xu2021", {"dataset": "mnist", "clip_norm": 5.0, "eval_every": 5})
    with patch("fedfair.protocol.task_data.reduce_group", reduced), patch("fedfair.models.find.build", built):
        Console().print(results_table(compared([run(experiment)])))
