"""The container: parts that fit together, records that keep their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.datasets import GroupedDataset
from fedfair.datasets.features.encoding import Encoding, Feature
from fedfair.datasets.grouped import Pixels
from tests.for_each import for_each


def toy(records: int = 100, groups: int = 3) -> GroupedDataset:
    x = torch.arange(float(records)).double()[:, None]
    return GroupedDataset(x, torch.arange(records) % 2, torch.arange(records) % groups,
                          tuple("abcdefgh"[:groups]), 2, encoding=Encoding((Feature("age"),)))


def test_parts_that_do_not_fit_together_are_refused() -> None:
    x, zeros = torch.zeros(3, 1), torch.zeros(3).long()
    with pytest.raises(ValueError, match="have 3, 2 and 3 records"):
        GroupedDataset(x, zeros[:2], zeros, ("a",), 2)
    with pytest.raises(ValueError, match=r"group numbers must lie in 0\.\.0"):
        GroupedDataset(x, zeros, zeros + 1, ("a",), 2)
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.1"):
        GroupedDataset(x, zeros - 1, zeros, ("a",), 2)


@for_each(("parts", "message"), [
    ({"participant": torch.zeros(2).long()}, "participant has 2 numbers, but there are 3 records: give one for each"),
    ({"published": torch.zeros(4).long()}, "published has 4 numbers, but there are 3 records"),
    ({"records": torch.arange(1)}, "records has 1 numbers, but there are 3 records"),
    ({"labels": ("no",)}, "labels names 1 classes, but there are 2: give each a name, or none at all"),
    ({"encoding": Encoding((Feature("age"), Feature("pay")))}, r"encoding has 2 features, but x is of shape \[3, 1\]")])
def test_what_is_said_of_records_and_classes_is_said_of_all_of_them(parts: Any, message: str) -> None:
    x, zeros = torch.zeros(3, 1), torch.zeros(3).long()
    with pytest.raises(ValueError, match=message):
        GroupedDataset(x, zeros, zeros, ("a",), 2, **parts)


def test_classes_are_called_by_their_numbers_where_nobody_named_them() -> None:
    x, zeros = torch.zeros(3, 1), torch.zeros(3).long()
    assert GroupedDataset(x, zeros, zeros, ("a",), 3).labels == ("0", "1", "2")
    assert GroupedDataset(x, zeros, zeros, ("a",), 2, ("no", "yes")).take(slice(1)).labels == ("no", "yes")


@pytest.mark.parametrize("name", ["all", "parity", "gap"])
def test_a_group_cannot_be_called_what_results_call_all_groups_together(name: str) -> None:
    zeros = torch.zeros(3).long()
    with pytest.raises(ValueError, match=f"a group is called {name!r}, as results call .*: give it another name"):
        GroupedDataset(torch.zeros(3, 1), zeros, zeros, ("a", name), 2)


def test_records_keep_their_numbers_when_they_are_taken() -> None:
    taken = toy(10).take(torch.tensor([7, 2, 5])).take(torch.tensor([2, 0]))
    assert taken.records.tolist() == [5, 7]
    assert taken.x[:, 0].tolist() == [5.0, 7.0]


def test_features_are_what_pixels_say_and_else_the_records_as_they_are() -> None:
    x, zeros = torch.tensor([[0, 255], [51, 102]], dtype=torch.uint8), torch.zeros(2).long()
    plain = GroupedDataset(x, zeros, zeros, ("a",), 1)
    assert plain.features().dtype == torch.uint8
    pixels = replace(plain, pixels=Pixels(0.2, 0.4, torch.float64))
    assert pixels.features(torch.tensor([1, 0])).flatten().tolist() == pytest.approx([0, 0.5, -0.5, 2], abs=1e-12)
    assert pixels.take(slice(1, 2)).features(slice(None)).tolist() == pixels.features(torch.tensor([1])).tolist()
    assert pixels.x is x


def test_an_empty_subset_has_no_records() -> None:
    empty = toy(10).take(torch.arange(0))
    assert len(empty) == 0
    assert empty.records.shape == (0,)
    assert empty.group_sizes() == (0, 0, 0)


@for_each(("shape", "most"), [((), 4096), ((0,), 4096), ((100,), 4096), ((3, 64, 64), 85), ((2**21,), 1)])
def test_the_larger_the_records_the_fewer_go_through_a_model_together(shape: tuple[int, ...], most: int) -> None:
    zeros = torch.zeros(5000).long()
    portions = GroupedDataset(torch.zeros(1).expand(5000, *shape), zeros, zeros, ("a",), 1).portions(torch.arange(5000))
    assert torch.equal(torch.cat(portions), torch.arange(5000))
    assert max(map(len, portions)) == most


@given(st.lists(st.tuples(st.sampled_from([(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]), st.integers(0, 1), st.integers(0, 1))))
def test_each_kind_of_record_is_counted_where_it_occurs_first(
        kinds: list[tuple[tuple[float, float], int, int]]) -> None:
    x, y, group = (torch.tensor([kind[part] for kind in kinds]) for part in range(3))
    data = GroupedDataset(x.view(-1, 2), y.long(), group.long(), ("a", "b"), 2)
    rows, times = data.distinct
    assert rows.tolist() == [row for row, kind in enumerate(kinds) if kind not in kinds[:row]]
    assert times.tolist() == [kinds.count(kinds[row]) for row in rows.tolist()]


def test_records_need_not_lie_row_by_row_in_memory_to_be_counted() -> None:
    zeros = torch.zeros(3).long()
    for x in (torch.tensor([[1, 2, 1], [3, 4, 3]]).T, torch.tensor([[1, 2, 1], [3, 4, 3]]).T[..., None]):
        assert [found.tolist() for found in GroupedDataset(x, zeros, zeros, ("a",), 1).distinct] == [[0, 1], [2, 1]]


def test_no_records_are_no_portion_since_not_every_model_can_be_given_none() -> None:
    assert toy(0).portions(torch.arange(0)) == ()
