"""Records of one person, and equal records, go into one part."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedfair.datasets import GroupedDataset, Parts, names
from fedfair.datasets.split import Together, split, units
from tests.for_each import for_each

SHARES = (0.7, 0.1, 0.2)


def people(persons: int = 30, visits: int = 4) -> GroupedDataset:
    records = torch.arange(persons * visits)
    return GroupedDataset(records.double()[:, None], records % 2, records % 3 % 2, ("a", "b"), 2,
                          participant=records % persons)


def persons(parts: Parts) -> list[set[int]]:
    return [set(part.participant.tolist()) for _, part in parts]


@for_each("seed", range(5))
@for_each("published", [False, True])
def test_all_records_of_a_participant_are_in_one_part(seed: int, published: bool) -> None:
    data = people()
    if published:  # a test part alone: the validation part is drawn
        data = replace(data, published=torch.where(data.participant < 6, 2, 0))
    train, valid, test = persons(split(data, SHARES, seed, Together()))
    assert not train & valid | train & test | valid & test
    assert len(train) + len(valid) + len(test) == 30
    assert (len(train), len(valid), len(test)) == (21, 3, 6)
    mixed = persons(split(data, SHARES, seed))
    assert mixed[0] & mixed[1]


def test_what_others_records_hold_does_not_move_a_participant() -> None:
    data = people()
    other = replace(data, x=data.x + 99 * (data.participant[:, None] == 3), y=1 - data.y)
    first, second = (split(each, SHARES, 0, Together()) for each in (data, other))
    assert all(torch.equal(a.records, b.records) for (_, a), (_, b) in zip(first, second, strict=True))


def test_exact_duplicates_go_together_on_request_and_with_their_participants() -> None:
    data = people()
    x = data.x.clone()
    x[40], x[95] = x[7], x[95]
    data = replace(data, x=x, y=data.y.where(torch.arange(120) != 40, data.y[7]),
                   group=data.group.where(torch.arange(120) != 40, data.group[7]))
    alone, both = units(data, Together(False, True)), units(data, Together(True, True))
    assert alone is not None
    assert both is not None
    assert len(alone.unique()) == 119
    assert alone[40] == alone[7]
    assert len(both.unique()) == 29  # the participants 7 and 10 are tied by their equal records
    assert both[40] == both[7] == both[37] == both[10]
    assert units(data, Together(False)) is None


def test_participants_in_several_parts_are_mentioned_once(caplog: pytest.LogCaptureFixture) -> None:
    names.warn_once.cache_clear()
    split(people(), SHARES, 0, Together())
    assert "participants" not in caplog.text
    for seed in range(3):
        split(people(), SHARES, seed)
    assert caplog.text.count("participants have records in several parts") == 1
