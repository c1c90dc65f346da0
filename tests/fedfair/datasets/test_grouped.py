"""The container: parts that fit together, records that keep their numbers."""

from __future__ import annotations

import pytest
import torch

from fedfair.datasets import GroupedDataset


def toy(records: int = 100, groups: int = 3) -> GroupedDataset:
    x = torch.arange(float(records)).double()[:, None]
    return GroupedDataset(x, torch.arange(records) % 2, torch.arange(records) % groups,
                          tuple("abcdefgh"[:groups]), 2, (0,))


def test_parts_that_do_not_fit_together_are_refused() -> None:
    x, zeros = torch.zeros(3, 1), torch.zeros(3).long()
    with pytest.raises(ValueError, match="have 3, 2 and 3 records"):
        GroupedDataset(x, zeros[:2], zeros, ("a",), 2)
    with pytest.raises(ValueError, match=r"group numbers must lie in 0\.\.0"):
        GroupedDataset(x, zeros, zeros + 1, ("a",), 2)
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.1"):
        GroupedDataset(x, zeros - 1, zeros, ("a",), 2)


def test_records_keep_their_numbers_when_they_are_taken() -> None:
    taken = toy(10).take(torch.tensor([7, 2, 5])).take(torch.tensor([2, 0]))
    assert taken.records.tolist() == [5, 7]
    assert taken.x[:, 0].tolist() == [5.0, 7.0]


def test_taking_nobody_numbers_nobody() -> None:
    empty = toy(10).take(torch.arange(0))
    assert len(empty) == 0
    assert empty.records.shape == (0,)
    assert empty.group_sizes() == (0, 0, 0)
