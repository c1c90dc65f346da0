"""The public data sets against their raw files: sizes, orientation of labels and groups, no leakage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedfair.datasets import GroupedDataset, adult, digits, dutch


@pytest.fixture(scope="module")
def census(data_dir: Path) -> GroupedDataset:
    return adult.load()


@pytest.fixture(scope="module")
def dutch_census(data_dir: Path) -> GroupedDataset:
    return dutch.load()


def sizes(data: GroupedDataset) -> dict[str, int]:
    return dict(zip(data.names, data.group_sizes(), strict=True))


def leaks(data: GroupedDataset) -> list[int]:
    """Columns of `x` from which the label can be read off."""
    x, y = data.x.flatten(1).double(), data.y.double()
    x, y = x - x.mean(0), y - y.mean()
    correlation = (x * y[:, None]).sum(0) / (x.norm(dim=0) * y.norm()).clamp(min=1e-12)
    return (correlation.abs() > 0.95).nonzero().flatten().tolist()


def test_adult(census: GroupedDataset) -> None:
    assert sizes(census) == {"Female": 14_695, "Male": 30_527}
    assert census.x.shape == (45_222, 100)
    assert census.classes == 2
    assert float(census.y.double().mean()) == pytest.approx(0.248, abs=0.001)  # 1 is an income above 50K
    assert census.numeric == (0, 1, 2, 3, 4)
    assert set(census.x[:, 5:].unique().tolist()) == {0.0, 1.0}
    assert bool(census.x.isfinite().all())
    assert leaks(census) == []


def test_adult_agrees_with_the_raw_files(census: GroupedDataset, data_dir: Path) -> None:
    """Counted line by line, without pandas."""
    rows = [line.strip().rstrip(".").split(", ") for name in ("adult.data", "adult.test")
            for line in (data_dir / name).read_text().splitlines() if line.count(",") == 14]
    rows = [row for row in rows if "?" not in row]
    assert len(rows) == len(census)
    assert sum(row[14] == ">50K" for row in rows) == int(census.y.sum())
    assert [int(row[0]) for row in rows] == census.x[:, 0].int().tolist()
    names = [row[9] for row in rows]
    assert [census.names[k] for k in census.group.tolist()] == names
    assert sum(row[14] == ">50K" and row[9] == "Female" for row in rows) == int(
        census.y[census.group == census.names.index("Female")].sum())


def test_adult_by_race(data_dir: Path) -> None:
    by_race = adult.load("race")
    assert by_race.names == ("Non-White", "White")
    assert len(by_race) == 45_222
    assert by_race.group_sizes()[1] > 38_000
    with pytest.raises(ValueError, match="unknown protected attribute of adult 'sexx': did you mean 'sex'"):
        adult.load("sexx")


def test_dutch(dutch_census: GroupedDataset) -> None:
    assert sizes(dutch_census) == {"female": 30_273, "male": 30_147}
    assert len(dutch_census) == 60_420
    assert dutch_census.numeric == ()
    assert set(dutch_census.x.unique().tolist()) == {0.0, 1.0}
    assert leaks(dutch_census) == []
    rate = [float(dutch_census.y[dutch_census.group == k].double().mean()) for k in (0, 1)]
    assert rate[1] > rate[0] + 0.2  # high-level occupations: men far more often, as published


def test_digits() -> None:
    data = digits.load()
    assert len(data) == 1_797
    assert data.x.shape == (1_797, 1, 8, 8)
    assert (float(data.x.min()), float(data.x.max())) == (0.0, 1.0)
    assert data.names == tuple("0123456789")
    assert torch.equal(data.y, data.group)
    with pytest.raises(ValueError, match="protected attribute of digits"):
        digits.load("sex")
