"""Columns that are left out, and numbers that are scaled by what is public of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.datasets.features import Range, leave_out, to_ranges
from fedfair.datasets.table import from_frame
from fedfair.task import Task
from simulations import Experiment, run
from simulations.experiment import SettingsError
from simulations.result import environment

FRAME = pd.DataFrame({"age": [20, 40, 60, 90], "city": ["a", "b", "c", "a"], "pay": [1.0, 2.0, 3.0, 9.0],
                      "sex": ["f", "m", "m", "f"], "vote": [0, 1, 1, 0]})
RANGES = (Range("pay", 1.0, 5.0), Range("age", 20.0, 70.0))
ADULT = {"age": [17, 90], "education-num": [1, 16], "capital-gain": [0, 99_999], "capital-loss": [0, 4_356],
         "hours-per-week": [1, 99]}


def data() -> Any:
    return from_frame(FRAME, label="vote", group="sex", numeric=("age", "pay"))


def test_every_feature_knows_its_column() -> None:
    assert data().columns == ("age", "pay", "city", "city", "city", "sex", "sex")


def test_a_column_is_left_out_with_all_its_features() -> None:
    left = leave_out(data(), ("age", "sex"))
    assert left.columns == ("pay", "city", "city", "city")
    assert left.numeric == (0,)
    assert torch.equal(left.x, data().x[:, 1:5])
    assert torch.equal(left.group, data().group)


def test_ranges_make_numbers_zero_to_one_and_move_what_is_beyond_to_the_end() -> None:
    scaled = to_ranges(data(), RANGES)
    assert scaled.x[:, 0].tolist() == pytest.approx([0, 0.4, 0.8, 1])
    assert scaled.x[:, 1].tolist() == pytest.approx([0, 0.25, 0.5, 1])
    assert torch.equal(scaled.x[:, 2:], data().x[:, 2:])
    assert scaled.numeric == ()


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


@pytest.mark.parametrize(("ranges", "message"), [
    ((*RANGES, Range("wage", 0, 1)), "unknown numeric column 'wage'"),
    ((*RANGES, Range("city", 0, 1)), "ranges names city twice, or it is not numeric"),
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
    assert any("values that a column" in said for said in environment([made])["not_private"])
    assert any("standardisation" in said for said in environment([made, Experiment()])["not_private"])
    assert run(made).experiment == made
