"""Features that are left out, and numbers that are scaled by their public ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.datasets.features.features import Range, drop_first, leave_out, to_ranges
from fedfair.datasets.table import from_frame
from fedfair.protocol.task import Task
from simulations import Experiment, run
from simulations.plans.compare import experiments
from simulations.results.environment import environment
from simulations.settings.experiment import SettingsError
from tests.for_each import for_each

FRAME = pd.DataFrame({"age": [20, 40, 60, 90], "city": ["a", "b", "c", "a"], "pay": [1.0, 2.0, 3.0, 9.0],
                      "sex": ["f", "m", "m", "f"], "vote": [0, 1, 1, 0]})
RANGES = (Range("pay", 1.0, 5.0), Range("age", 20.0, 70.0))
ADULT = {"age": [17, 90], "education-num": [1, 16], "capital-gain": [0, 99_999], "capital-loss": [0, 4_356],
         "hours-per-week": [1, 99]}


def data() -> Any:
    return from_frame(FRAME, label="vote", group="sex", numeric=("age", "pay"))


def test_every_feature_knows_its_column() -> None:
    assert data().columns == ("age", "pay", "city", "city", "city", "sex", "sex")


def test_every_one_hot_feature_knows_its_category() -> None:
    made = data()
    assert made.categories == (None, None, "a", "b", "c", "f", "m")
    for place in range(2, 7):
        same = FRAME[made.columns[place]] == made.categories[place]
        assert made.x[:, place].tolist() == same.astype(float).tolist()


def test_the_first_category_of_every_one_hot_column_is_dropped() -> None:
    dropped = drop_first(data())
    wanted = pd.get_dummies(FRAME.drop(columns="vote"), drop_first=True, dtype=float)
    assert [*map("_".join, zip(dropped.columns[2:], dropped.categories[2:], strict=True))] == [*wanted.columns[2:]]
    assert dropped.x.tolist() == wanted.to_numpy().tolist()
    assert dropped.numeric == (0, 1)
    with pytest.raises(ValueError, match="drop_first is set, but no column of the data is one-hot: leave it out"):
        drop_first(leave_out(data(), ("city", "sex")))


@given(st.lists(st.integers(-20, 120), min_size=4, max_size=30), st.integers(-20, 49), st.integers(50, 120))
def test_a_one_hot_column_of_codes_is_one_number_where_it_has_a_range(codes: list[int], low: int, high: int) -> None:
    frame = pd.DataFrame({"code": codes, "sex": ["f", "m"] + ["f"] * (len(codes) - 2),
                          "vote": [0, 1] + [1] * (len(codes) - 2)})
    scaled = to_ranges(from_frame(frame, "vote", "sex"), [Range("code", low, high)])
    assert scaled.columns == ("code", "sex", "sex")
    assert scaled.categories == (None, "f", "m")
    assert scaled.x[:, 0].tolist() == pytest.approx(
        [(min(max(code, low), high) - low) / (high - low) for code in codes])
    assert torch.equal(scaled.x[:, 1:], from_frame(frame.drop(columns="code"), "vote", "sex").x)


@pytest.mark.usefixtures("data_dir")
def test_the_attributes_of_xu_et_al_on_dutch_are_thirty_five() -> None:
    """As the paper counts them."""
    (experiment,) = experiments(["sgd"], [0], "xu2021", {"dataset": "dutch"})
    train = experiment.task.data().train
    assert train.x.shape == (48_336, 35)
    assert train.x.min() == 0
    assert train.x.max() == 1


@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize(("dataset", "shape", "parameters", "coded"), [
    ("adult", (23_512, 98), 91_650, {"sex": "Female", "race": "Non-White"}),
    ("dutch", (48_336, 59), 120, {"sex": "female", "prev_residence_place": "2"})])
def test_the_features_of_esipova_et_al_are_as_many_as_their_models_take(
        dataset: str, shape: tuple[int, int], parameters: int, coded: dict[str, str]) -> None:
    """As many as follow from the paper's parameters, with the authors' categories as 1 where there are two; Adult's
    records give the published epsilon, 3.41.
    """
    balance = {"balance": "all-women"} if dataset == "adult" else {}
    (experiment,) = experiments(["sgd"], [0], "esipova2023", {"dataset": dataset, **balance})
    train = experiment.task.data().train
    assert train.x.shape == shape
    found = [(column, category) for column, category in zip(train.columns, train.categories, strict=True)
             if column in coded]
    assert sorted(found) == sorted(coded.items())
    assert sum(p.numel() for p in experiment.task.build_model().parameters()) == parameters


def test_a_column_is_left_out_with_all_its_features() -> None:
    left = leave_out(data(), ("age", "sex"))
    assert left.columns == ("pay", "city", "city", "city")
    assert left.numeric == (0,)
    assert left.categories == (None, "a", "b", "c")
    assert torch.equal(left.x, data().x[:, 1:5])
    assert torch.equal(left.group, data().group)


def test_ranges_make_numbers_zero_to_one_and_move_what_is_beyond_to_the_end() -> None:
    scaled = to_ranges(data(), RANGES)
    assert scaled.x[:, 0].tolist() == pytest.approx([0, 0.4, 0.8, 1])
    assert scaled.x[:, 1].tolist() == pytest.approx([0, 0.25, 0.5, 1])
    assert torch.equal(scaled.x[:, 2:], data().x[:, 2:])
    assert scaled.numeric == ()


@pytest.mark.parametrize("text", ["nan", "inf", "x"])
def test_a_category_that_is_no_finite_number_is_no_code(text: str) -> None:
    made = from_frame(FRAME.assign(city=["1", text, "2", "1"]), "vote", "sex", ("age", "pay"))
    with pytest.raises(ValueError, match=f"ranges names city, which holds no numbers .*{text}"):
        to_ranges(made, (*RANGES, Range("city", 0, 2)))


def test_a_column_that_lacks_a_category_has_neither_a_first_one_nor_codes() -> None:
    without = leave_out(from_frame(FRAME.assign(city=["1", "2", "3", "1"]), "vote", "sex", ("age", "pay")), ("city=2",))
    with pytest.raises(ValueError, match="drop_first is set, but a category of city is left out already"):
        drop_first(without)
    with pytest.raises(ValueError, match="ranges names city, but a category of city is left out already"):
        to_ranges(without, (*RANGES, Range("city", 0, 3)))


@pytest.mark.usefixtures("data_dir")
def test_yangs_one_feature_for_sex_is_1_for_men() -> None:
    (experiment,) = experiments(["sgd"], [0], "yang2024", {"dataset": "dutch"})
    train = experiment.task.data().train
    assert train.x.shape[1] == 60
    assert torch.equal(train.x[:, 0].long(), train.group)
    assert train.names == ("female", "male")


def test_a_category_is_left_out_alone() -> None:
    left = leave_out(data(), ("city=b", "sex"))
    assert left.categories == (None, None, "a", "c")
    assert torch.equal(left.x, data().x[:, [0, 1, 2, 4]])
    with pytest.raises(ValueError, match=r"unknown column 'city=d': .* known are city=a, city=b, city=c$"):
        leave_out(data(), ("city=d",))


def test_what_was_left_out_is_known_however_often_that_is_done() -> None:
    left = leave_out(leave_out(drop_first(data()), ("city=b",)), ("age",))
    assert left.columns == ("pay", "city", "sex")
    assert left.encoding.categories("city") == ("a", "b", "c")
    assert left.encoding.categories("sex") == ("f", "m")
    assert left.encoding.categories("age") == ()


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2), st.floats(-1e6, 1e6))
def test_what_a_record_becomes_does_not_depend_on_the_others(others: list[float], own: float) -> None:
    frame = FRAME.assign(pay=[own, *others, 3.0])
    scaled = to_ranges(from_frame(frame, "vote", "sex", ("age", "pay")), RANGES)
    assert scaled.x[0, 1] == pytest.approx(min(max((own - 1) / 4, 0), 1))


@pytest.mark.parametrize(("columns", "message"), [
    (("town",), "unknown column 'town'"), (("vote",), "unknown column 'vote'"),
    (("age", "pay", "city", "sex"), "no feature would be left to learn from")])
def test_columns_that_cannot_be_left_out_are_refused(columns: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        leave_out(data(), columns)


@for_each(("ranges", "message"), [
    ((*RANGES, Range("wage", 0, 1)), "unknown column 'wage'"),
    ((*RANGES, Range("city", 0, 1)), r"ranges names city, which holds no numbers \(a, b, c\): leave it out"),
    ((*RANGES, Range("age", 0, 1)), "ranges names age twice"),
    (RANGES[:1], "ranges says nothing of age: give every numeric column its public range"),
    ((RANGES[0], Range("age", 70, 20)), "the range of age is 70 to 20: give two numbers, the smaller first"),
    ((RANGES[0], Range("age", 20, float("inf"))), "the range of age is 20 to inf")])
def test_ranges_that_do_not_fit_are_refused(ranges: tuple[Range, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_ranges(data(), ranges)


@pytest.mark.parametrize("ends", [5, [17], [17, 50, 90], "17-90"])
def test_a_range_without_two_ends_is_refused_in_a_sentence(ends: Any) -> None:
    with pytest.raises(SettingsError, match=r"^the range of age is .*: give two numbers, the smaller first"):
        Experiment(dataset="adult", ranges={"age": ends})


def test_images_have_no_columns() -> None:
    for settings, message in (({"without": ("sex",)}, "the records are no table"),
                              ({"ranges": {"age": (0, 1)}}, "none: leave ranges out")):
        with pytest.raises(ValueError, match=message):
            Task(**settings).data()


def test_ranges_by_name_are_those_of_the_task_that_clients_are_told(data_dir: Path) -> None:
    task = Task(dataset="adult", ranges=ADULT, without=("sex", "race"))
    told = Task.model_validate_json(task.text)
    assert told == task
    assert task.ranges is not None
    assert task.ranges[0] == Range("age", 17, 90)
    parts = told.data()
    assert "sex" not in parts.train.columns
    for _, part in parts:
        assert float(part.x.min()) == 0
        assert float(part.x.max()) == 1
    assert parts.train.names == ("Female", "Male")


def test_a_run_with_ranges_takes_nothing_from_the_training_records_without_noise(data_dir: Path) -> None:
    made = Experiment(dataset="adult", ranges=ADULT, steps=1, sync="step")
    again = Experiment(**made.settings())
    assert again == made
    assert not any("standardisation" in said for said in environment([made])["not_private"])
    assert not any("values that a column" in said for said in environment([made])["not_private"])
    papers = Experiment(dataset="adult", preprocessing="records")
    assert any("standardisation" in said for said in environment([made, papers])["not_private"])
    assert any("values that a column" in said for said in environment([made, papers])["not_private"])
    assert run(made).experiment == made
