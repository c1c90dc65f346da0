"""The public data sets against their raw files: sizes, orientation of labels and groups, no leakage."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from fedfair.datasets import GroupedDataset
from fedfair.datasets.published import images as published_images
from fedfair.datasets.published.images import digits, mnist
from fedfair.datasets.published.tables import ADULT, BANK, COMPAS, CREDIT, DUTCH, LAW, Table
from fedfair.datasets.split import reduce_group, split
from fedfair.protocol.task import Task


@pytest.fixture(scope="module")
def census(data_dir: Path) -> GroupedDataset:
    return ADULT.load()


@pytest.fixture(scope="module")
def dutch_census(data_dir: Path) -> GroupedDataset:
    return DUTCH.load()


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
    by_race = ADULT.load("race")
    assert by_race.names == ("Non-White", "White")
    assert len(by_race) == 45_222
    assert by_race.group_sizes()[1] > 38_000
    with pytest.raises(ValueError, match="unknown protected attribute of adult 'sexx': did you mean 'sex'"):
        ADULT.load("sexx")


def test_dutch(dutch_census: GroupedDataset) -> None:
    assert sizes(dutch_census) == {"female": 30_273, "male": 30_147}
    assert len(dutch_census) == 60_420
    assert dutch_census.numeric == ()
    assert set(dutch_census.x.unique().tolist()) == {0.0, 1.0}
    assert leaks(dutch_census) == []
    rate = [float(dutch_census.y[dutch_census.group == k].double().mean()) for k in (0, 1)]
    assert rate[1] > rate[0] + 0.2  # high-level occupations: men far more often, as published


@pytest.mark.parametrize("file", [published_images._DIGITS_FILE, "moved"])
def test_digits_are_scikit_learns(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits

    monkeypatch.setattr(published_images, "_DIGITS_FILE", file)
    data, (images, labels) = digits(), load_digits(return_X_y=True)
    assert torch.equal(data.x, torch.tensor(images).view(-1, 1, 8, 8) / 16)
    assert torch.equal(data.y, torch.tensor(labels))
    assert torch.equal(data.group, data.y)


def test_digits() -> None:
    data = digits()
    assert len(data) == 1_797
    assert data.x.shape == (1_797, 1, 8, 8)
    assert (float(data.x.min()), float(data.x.max())) == (0.0, 1.0)
    assert data.names == tuple("0123456789")
    assert torch.equal(data.y, data.group)
    with pytest.raises(ValueError, match="protected attribute of digits"):
        digits("sex")


@pytest.mark.parametrize(("source", "features", "numeric", "groups", "positive"), [
    (BANK, 50, 7, {"married": 27_214, "single": 12_790}, 4_667),
    (CREDIT, 91, 14, {"female": 18_112, "male": 11_888}, 6_636),
    (COMPAS, 16, 1, {"African-American": 3_175, "Caucasian": 2_103}, 2_795),
    (LAW, 23, 6, {"Non-White": 3_307, "White": 17_491}, 18_505)])
def test_the_other_tables(source: Table, features: int, numeric: int, groups: dict[str, int], positive: int,
                          data_dir: Path) -> None:
    data = source.load()
    assert sizes(data) == groups
    assert data.x.shape == (sum(groups.values()), features)
    assert data.numeric == tuple(range(numeric))
    assert set(data.x[:, numeric:].unique().tolist()) == {0.0, 1.0}
    assert (data.classes, int(data.y.sum())) == (2, positive)
    assert leaks(data) == []
    with pytest.raises(ValueError, match="unknown protected attribute of"):
        source.load("town")


def test_good_outcomes_are_label_1(data_dir: Path) -> None:
    """Counted line by line, without pandas."""
    for source, file, place, column, good in (
            (COMPAS, "compas-scores-two-years.csv", 3, 13, "0"), (LAW, "law_school_clean.csv", 10, 11, "1.0"),
            (BANK, "bank-full.csv", 2, 16, "yes"), (CREDIT, "credit-card-clients.csv", 1, 23, "1")):
        lines = [line.split(",") for line in (data_dir / file).read_text().splitlines()[1:]]
        data = source.load()
        named = {"1": "male", "2": "female"} if source is CREDIT else {}
        for k, name in enumerate(data.names):
            of_group = [line for line in lines if named.get(line[place], line[place]) == name]
            assert sum(line[column] == good for line in of_group) == int(data.y[data.group == k].sum()), (file, name)


def test_compas_names_nobody(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published file has names and more columns: what is verified and used is the same without them."""
    frame = pd.read_csv(data_dir / "compas-scores-two-years.csv")
    frame.insert(0, "name", [f"somebody {i}" for i in range(len(frame))])
    frame[frame.columns[::-1]].to_csv(tmp_path / "compas-scores-two-years.csv", index=False)
    plain = COMPAS.load()
    monkeypatch.setenv("FEDFAIR_DATA_DIR", str(tmp_path))
    named = COMPAS.load()
    assert torch.equal(named.x, plain.x)
    assert torch.equal(COMPAS.load("sex").group.bincount(), torch.tensor([1031, 4247]))
    frame.assign(race=frame["race"][::-1].to_numpy()).to_csv(tmp_path / "compas-scores-two-years.csv", index=False)
    with pytest.raises(ValueError, match="is not the published file"):
        COMPAS.load()


@pytest.fixture(scope="module")
def images(data_dir: Path) -> GroupedDataset:
    return mnist()


def test_mnist(images: GroupedDataset) -> None:
    assert images.x.shape == (70_000, 1, 28, 28)
    assert images.x.dtype == torch.uint8
    assert torch.equal(images.y, images.group)
    assert images.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert images.y[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    assert images.published.bincount().tolist() == [60_000, 0, 10_000]
    dark, bright = images.x[:5].float().mean(), images.x.max()
    assert 20 < float(dark) < 60
    assert int(bright) == 255
    with pytest.raises(ValueError, match="protected attribute of mnist"):
        mnist("sex")


def test_pixels_are_standardised_with_public_numbers(images: GroupedDataset) -> None:
    train = Task(dataset="mnist", pixels=(0.1307, 0.3081), split=(1 / 6, 4 / 6, 1 / 6)).data().train
    first = images.x[train.records[:3]].double()
    expected = (first / 255 - 0.1307) / 0.3081
    assert torch.allclose(train.features(slice(3)).double(), expected, rtol=0, atol=1e-6)
    assert torch.equal(train.features(torch.arange(3)), train.features(slice(3)))
    assert float(train.features().mean()) == pytest.approx(0, abs=0.02)
    assert float(train.features().std()) == pytest.approx(1, abs=0.02)


def test_pixels_stay_bytes_until_a_model_needs_them(images: GroupedDataset) -> None:
    task = Task(dataset="mnist", partition="site", clients=2, dtype="float64")
    for data in (task.data().train, task.clients_data().together.train, task.clients_data()[1].train):
        assert data.x.dtype == images.x.dtype == torch.uint8
        assert data.features(slice(2)).dtype == torch.float64


@pytest.mark.parametrize(("imbalance", "digit", "kept", "records"), [
    ("8:500", 8, 500, 54_649), ("8:9%", 8, 527, 54_676), ("2:500", 2, 500, 54_542)])
def test_mnists_imbalances_concern_training_alone(imbalance: str, digit: int, kept: int, records: int,
                                                  images: GroupedDataset) -> None:
    """54,649 records are those of Xu et al. 2021, Table 1; hazard 19."""
    parts = reduce_group(split(images, (0.8, 0.0, 0.2), 3), imbalance, 3)
    assert len(parts.train) == records
    assert parts.train.group_sizes()[digit] == kept
    assert len(parts.valid) == 0
    assert sorted(parts.test.records.tolist()) == list(range(60_000, 70_000))


def test_mnists_validation_part_comes_from_the_training_part(images: GroupedDataset) -> None:
    parts = split(images, (0.7, 0.1, 0.2), 0)
    assert [len(part) for _, part in parts] == [52_500, 7_500, 10_000]
    held = torch.cat([parts.train.records, parts.valid.records])
    assert sorted(held.tolist()) == list(range(60_000))
