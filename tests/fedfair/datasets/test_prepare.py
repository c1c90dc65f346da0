"""Splits, thinned groups and standardisation, record by record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.datasets import GroupedDataset, Parts
from fedfair.datasets.features.encoding import Encoding, Feature
from fedfair.datasets.features.features import standardise
from fedfair.datasets.split import keep, reduce_group, split
from fedfair.protocol.task import Task
from tests.for_each import for_each


def sizes(data: GroupedDataset) -> dict[str, int]:
    return dict(zip(data.names, data.group_sizes(), strict=True))


def toy(records: int = 100, groups: int = 3) -> GroupedDataset:
    x = torch.arange(float(records)).double()[:, None]
    return GroupedDataset(x, torch.arange(records) % 2, torch.arange(records) % groups,
                          tuple("abcdefgh"[:groups]), 2, encoding=Encoding((Feature("age"),)))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 200), st.sampled_from([(0.7, 0.1, 0.2), (0.8, 0.0, 0.2), (0.5, 0.5, 0.0), (1 / 3, 1 / 3, 1 / 3)]),
       st.integers(0, 99))
def test_parts_are_disjoint_complete_and_of_the_stated_sizes(records: int, shares: tuple[float, float, float],
                                                             seed: int) -> None:
    """Hazard 19: no record is in two parts."""
    parts = split(toy(records), shares, seed)
    held = torch.cat([part.records for _, part in parts])
    assert sorted(held.tolist()) == list(range(records))
    assert all(abs(len(part) - share * records) <= 1 for (_, part), share in zip(parts, shares, strict=True))
    assert all(torch.equal(part.x[:, 0], part.records.double()) for _, part in parts)


def test_without_a_validation_share_the_validation_part_is_empty() -> None:
    parts = split(toy(), (0.8, 0.0, 0.2), 0)
    assert [len(part) for _, part in parts] == [80, 0, 20]


def test_a_split_is_random_and_follows_its_seed() -> None:
    first, again, other = (split(toy(), (0.7, 0.1, 0.2), seed).train.records for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert set(first.tolist()) != set(other.tolist())
    assert set(first.tolist()) != set(range(70))


@for_each(("imbalance", "kept"), [("8:40", 40), ("8:9%", 9), ("8:0.5%", 0), ("8:100%", 100), ("8:0", 0),
                                  ("8:100", 100)])
def test_one_group_of_the_training_part_is_thinned_out(imbalance: str, kept: int) -> None:
    ten = torch.arange(1000) % 10
    data = GroupedDataset(torch.zeros(1000, 1), ten, ten, tuple("0123456789"), 10)
    reduced = reduce_group(Parts(data, data, data), imbalance, 0)
    expected = dict.fromkeys(data.names, 100) | {"8": kept}
    assert sizes(reduced.train) == expected
    assert reduced.test is reduced.valid is data


def test_a_group_name_may_hold_a_colon() -> None:
    data = GroupedDataset(torch.zeros(4, 1), torch.zeros(4).long(), torch.tensor([0, 0, 1, 1]), ("a:b", "c"), 2)
    assert sizes(reduce_group(Parts(data, data, data), "a:b:1", 0).train) == {"a:b": 1, "c": 2}


@for_each(("imbalance", "expected"), [
    ("eight", "write GROUP:RECORDS"), ("8:", "write GROUP:RECORDS"), (":5", "write GROUP:RECORDS"),
    ("8:-1", "write GROUP:RECORDS"), ("8:200%", "write GROUP:RECORDS"), ("8:many", "write GROUP:RECORDS"),
    ("8:nan", "write GROUP:RECORDS"), ("8:inf", "."), ("11:5", "unknown group '11'"),
    ("8:101", "group '8' has 100 records here: 101 of them cannot be kept")])
def test_a_wrong_imbalance_is_refused(imbalance: str, expected: str) -> None:
    ten = torch.arange(1000) % 10
    data = GroupedDataset(torch.zeros(1000, 1), ten, ten, tuple("0123456789"), 10)
    with pytest.raises(ValueError, match=expected):
        reduce_group(Parts(data, data, data), imbalance, 0)


def test_keeping_some_records_keeps_their_order_and_the_other_groups() -> None:
    kept = keep(toy(90), {"a": 5, "b": 30}, 1)
    assert sizes(kept) == {"a": 5, "b": 30, "c": 30}
    assert kept.records.tolist() == sorted(kept.records.tolist())
    assert kept.records[kept.group == 0].tolist() != list(range(0, 15, 3))
    with pytest.raises(ValueError, match="unknown group 'd'"):
        keep(toy(), {"d": 1}, 0)


def test_the_training_part_alone_decides_the_scale() -> None:
    """Hazard 20."""
    data = toy(90)
    parts = Parts(data.take(torch.arange(50)), data.take(torch.arange(50, 60)), data.take(torch.arange(60, 90)))
    scaled = standardise(parts)
    assert float(scaled.train.x.mean()) == pytest.approx(0)
    assert float(scaled.train.x.std(correction=0)) == pytest.approx(1)
    mean, deviation = np.mean(range(50)), np.std(range(50))
    assert scaled.test.x[:, 0].tolist() == pytest.approx([(i - mean) / deviation for i in range(60, 90)])
    assert scaled.valid.x[:, 0].tolist() == pytest.approx([(i - mean) / deviation for i in range(50, 60)])
    assert float(parts.train.x.mean()) == 24.5  # the parts themselves are as they were


def test_standardised_adult(data_dir: Path) -> None:
    parts = Task(dataset="adult", dtype="float64", preprocessing="records").data()
    train, test = parts.train.x[:, :5], parts.test.x[:, :5]
    assert float(train.mean(0).abs().max()) < 1e-9
    assert torch.allclose(train.std(0, correction=0), torch.ones(5, dtype=torch.float64))
    assert float(test.mean(0).abs().min()) > 1e-6
    assert set(parts.train.x[:, 5:].unique().tolist()) == {0.0, 1.0}


def test_a_constant_column_is_centred_only() -> None:
    data = GroupedDataset(torch.full((6, 1), 3.0), torch.zeros(6).long(), torch.arange(6) % 2, ("a", "b"), 2,
                          encoding=Encoding((Feature("pay"),)))
    scaled = standardise(Parts(data, data.take(torch.arange(0)), data.take(torch.arange(2))))
    assert scaled.train.x.tolist() == [[0.0]] * 6
    assert scaled.valid.x.shape == (0, 1)
