"""The black-box attack: guess from a record's loss under the final model whether it was trained on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from fedfair.accounting.events import Unit
from fedfair.datasets import GroupedDataset, Parts
from fedfair.mechanisms.randomness import generator
from fedfair.models.published import loss
from simulations.audits.findings import Audit, Bools, Floats, Guesses, judged, refuse_confidence
from simulations.results.result import Result


def membership(result: Result, confidence: float = 0.95) -> Audit:
    """Bound epsilon from the final model alone: of two records, guess that the one with the smaller loss was trained
    on.

    For each group, training records are paired at random with records of the test part, or of the validation part where
    the source published the test part. Given the pairs, the random split made either record of a pair the member with
    probability 1/2, so this works for the result of any engine. The attack is weak: it shows gross mistakes. Raises
    what `split_off_at_random` does.
    """
    refuse_confidence(confidence)
    held_out = split_off_at_random(result.data, result.ledger.protects)
    pairs = [_pairs(result, held_out, k) for k in range(len(held_out.names))]
    joined = Guesses(*(np.concatenate(parts) for parts in zip(*pairs, strict=True)))
    return judged("black box", result, joined, confidence, "replace")


def split_off_at_random(data: Parts, protects: Unit) -> GroupedDataset:
    """Return the records that `membership` sets against the training records: the test part, or else the validation
    part.

    Raises `ValueError` if neither was split off at random, or if participants are protected.
    """
    if protects != "record":
        raise ValueError(f"membership compares records, but this strategy protects a whole {protects}, and "
                         "swapping two records changes two of them: take the attack canaries")
    for name in ("test", "valid"):
        part: GroupedDataset = getattr(data, name)
        if name not in data.published and len(part):
            return part
    if not (len(data.test) or len(data.valid)):
        raise ValueError("all records trained, and membership sets others against them: give test a share in split, "
                         "for example [0.7, 0.1, 0.2], or take the attack canaries")
    raise ValueError("the source published the test part, whose records may be of another kind than the training "
                     "records, and no validation part was split off at random: give it a share in split, for example "
                     "[0.7, 0.1, 0.2], unless the source publishes one, or take the attack canaries")


def _pairs(result: Result, held_out: GroupedDataset, group: int) -> tuple[Floats, Bools, npt.NDArray[np.int64]]:
    """Pair a group's training and held-out records at random; score by how much larger the second's loss is."""
    draws = generator(result.experiment.seed, "membership", group)
    losses = []
    for part in (result.data.train, held_out):
        rows = torch.nonzero(part.group == group).flatten()
        shuffled = part.take(rows[torch.randperm(len(rows), generator=draws)])
        with torch.no_grad():
            losses.append(loss(result.model(shuffled.features()), shuffled.y))
    pairs = min(map(len, losses))
    trained_first = torch.rand(pairs, generator=draws) < 0.5
    difference = losses[1][:pairs] - losses[0][:pairs]
    return (torch.where(trained_first, difference, -difference).double().numpy(), trained_first.numpy(),
            np.full(pairs, group))
