"""The cleaned data sets, their variants and parts; real files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedfair.datasets import DATASETS, GroupedDataset
from fedfair.datasets.features.encoding import Encoding, Feature
from fedfair.datasets.features.features import standardise
from fedfair.datasets.split import keep, reduce_group, split
from fedfair.protocol.task import Task


@pytest.mark.parametrize(("name", "records", "features", "groups", "positive"), [
    ("adult", 45_222, 100, {"Female": 14_695, "Male": 30_527}, 0.2478),
    ("dutch", 60_420, 61, {"female": 30_273, "male": 30_147}, 0.4761)])
def test_sizes_after_cleaning(data_dir: Path, name: str, records: int, features: int, groups: dict[str, int],
                              positive: float) -> None:
    data = DATASETS[name].load(None)
    assert data.x.shape == (records, features)
    assert dict(zip(data.names, data.group_sizes(), strict=True)) == groups
    assert float(data.y.double().mean()) == pytest.approx(positive, abs=1e-4)
    centred = data.x - data.x.mean(0)
    y = data.y.double() - data.y.double().mean()
    correlation = (centred * y[:, None]).mean(0) / (centred.std(0) * y.std() + 1e-12)
    assert float(correlation.abs().max()) < 0.95  # the label is not among the features


def test_adult_by_race(data_dir: Path) -> None:
    assert DATASETS["adult"].load("race").names == ("Non-White", "White")
    with pytest.raises(ValueError, match="unknown protected attribute of adult 'age'"):
        DATASETS["adult"].load("age")


def test_published_variants(data_dir: Path) -> None:
    for name, variant, sizes in (("adult", "balanced", (14_000, 14_000)), ("dutch", "unbalanced", (10_000, 30_000))):
        parts = Task(dataset=name, balance=variant).data()
        assert tuple(sum(s) for s in zip(*(p.group_sizes() for _, p in parts), strict=True)) == sizes


def test_parts_are_disjoint_and_of_the_right_size() -> None:
    data = DATASETS["digits"].load(None)
    parts = split(data, (0.7, 0.1, 0.2), seed=3)
    assert [len(part) for _, part in parts] == [1258, 180, 359]
    assert sorted(torch.cat([part.records for _, part in parts]).tolist()) == list(range(1797))
    assert not torch.equal(parts.train.records, split(data, (0.7, 0.1, 0.2), seed=4).train.records)
    assert len(split(data, (0.8, 0.0, 0.2), seed=0).valid) == 0


def test_one_group_of_the_training_part_is_thinned_out() -> None:
    parts = split(DATASETS["digits"].load(None), (0.7, 0.1, 0.2), seed=0)
    before = parts.train.group_sizes()
    for text, left in (("8:40", 40), ("8:9%", round(0.09 * before[8])), ("8:0", 0)):
        reduced = reduce_group(parts, text, seed=0)
        assert reduced.train.group_sizes() == (*before[:8], left, before[9])
        assert len(reduced.test) == len(parts.test)
    for text, message in (("8", "write GROUP:RECORDS"), ("8:x", "write GROUP"), ("8:120%", "write GROUP"),
                          ("x:4", "unknown group"), ("8:4000", "4000 of them cannot be kept")):
        with pytest.raises(ValueError, match=message):
            reduce_group(parts, text, seed=0)


def test_standardisation_uses_the_training_part_alone() -> None:
    """Hazard 20."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(300, 3, generator=draws, dtype=torch.float64) * torch.tensor([2.0, 5.0, 0.0]) + 7
    data = GroupedDataset(x, torch.zeros(300).long(), torch.zeros(300).long(), ("a",), 1,
                          encoding=Encoding((Feature("age"), Feature("sex", "f"), Feature("pay"))))
    parts = standardise(split(data, (0.5, 0.2, 0.3), seed=0))
    assert parts.train.x[:, 0].mean().abs() < 1e-12
    assert parts.train.x[:, 0].std(correction=0) == pytest.approx(1)
    assert parts.test.x[:, 0].mean().abs() > 1e-3
    assert torch.equal(parts.train.x[:, 1], x[parts.train.records, 1])
    assert bool((parts.train.x[:, 2] == 0).all())


def test_inconsistent_data_is_refused() -> None:
    x, zeros = torch.zeros(4, 2), torch.zeros(4).long()
    for y, group in ((zeros[:3], zeros), (zeros, zeros + 1), (zeros + 2, zeros)):
        with pytest.raises(ValueError, match="must"):
            GroupedDataset(x, y, group, ("a",), 2)


def test_a_subset_keeps_numbers_and_order() -> None:
    data = DATASETS["digits"].load(None)
    kept = keep(data, {"3": 5}, seed=0)
    assert bool((kept.records.diff() > 0).all())
    assert torch.equal(kept.x, data.x[kept.records])
