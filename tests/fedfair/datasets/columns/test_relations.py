"""Columns that give the label or the group away, and columns that name persons of several rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedfair.datasets.columns.relations import questions, told_by

ROWS = 2000


def people() -> pd.DataFrame:
    draws = np.random.default_rng(4)
    years, sex = draws.integers(0, 30, ROWS), draws.choice(["f", "m"], ROWS)
    hired = np.where(years + draws.normal(0, 6, ROWS) > 15, "yes", "no")
    return pd.DataFrame({"years": years, "town": draws.choice(["x", "y", "z"], ROWS), "sex": sex, "hired": hired})


def plainly(column: pd.Series, target: pd.Series) -> tuple[int, int, int]:
    """Count by a loop over rows, for a column of few values."""
    pairs = [(value, own) for value, own in zip(column, target, strict=True) if not pd.isna(value) and not pd.isna(own)]
    right = 0
    for value in {value for value, _ in pairs}:
        own = [target for other, target in pairs if other == value]
        right += max(own.count(each) for each in own)
    every = [target for _, target in pairs]
    return right, len(pairs), max(every.count(each) for each in every)


@pytest.mark.parametrize("name", ["town", "sex"])
def test_counts_are_those_of_a_loop_and_gaps_count_nowhere(name: str) -> None:
    frame = people()
    gaps = frame[name].where(frame.index % 7 > 0)
    assert told_by(gaps, frame["hired"].where(frame.index % 11 > 0)) == plainly(
        gaps, frame["hired"].where(frame.index % 11 > 0))


def test_ordinary_columns_are_not_asked_about() -> None:
    assert questions(people(), "hired", ["sex"]) == []


@pytest.mark.parametrize("label", [1.0, 0.0])
def test_the_label_in_other_words_is_asked_about(label: float) -> None:
    frame = people()
    other = (frame["hired"] == "yes").astype(float) == label
    salary = np.where(frame["hired"] == "yes", 2000 + np.arange(ROWS), 0)  # what only those have who were hired
    said = questions(frame.assign(other=other.astype(int), salary=salary), "hired", ["sex"])
    assert [sentence.split(" known")[0] for sentence in said] == ["is column 'other'", "is column 'salary'"]
    assert "tells 'hired' in 2,000 of 2,000 rows" in said[0]
    assert 'give without = ["other"]' in said[0]


def test_the_group_in_other_words_is_asked_about_though_a_few_rows_differ() -> None:
    frame = people()
    names = np.where(frame["sex"] == "f", np.array(["Ada", "Eva", "Ida"])[np.arange(ROWS) % 3], "Max")
    wrong = np.where(np.arange(ROWS) < 15, "Max", names)
    many = np.where(np.arange(ROWS) < 100, "Max", names)
    said = questions(frame.assign(first=wrong, second=many), "hired", ["sex"])
    assert len(said) == 1
    assert said[0].startswith("is column 'first' the group 'sex' in other words?")


def test_a_rare_class_is_told_by_what_tells_it_alone() -> None:
    frame = people().assign(hired=np.where(np.arange(ROWS) < 10, "yes", "no"))  # a guess is right for .995
    assert questions(frame, "hired", ["sex"]) == []
    assert len(questions(frame.assign(flag=frame["hired"] == "yes"), "hired", ["sex"])) == 1


def test_rows_of_one_person_are_asked_about_unless_one_is_named() -> None:
    frame = people().assign(person_id=np.arange(ROWS) // 3, street_no=np.arange(ROWS), visits=np.arange(ROWS) // 3)
    said = questions(frame, "hired", ["sex"])
    assert len(said) == 1
    assert "'person_id' has the name of an identifier, and 667 values in 2,000 rows" in said[0]
    assert questions(frame, "hired", ["sex"], "person_id") == []


def test_names_alone_do_not_tell_groups_of_few_rows_each() -> None:
    """A thousand surnames of two rows tell everything, by chance."""
    frame = people().assign(surname=lambda frame: frame["sex"] + (np.arange(ROWS) // 4).astype(str))
    assert questions(frame, "hired", ["sex"]) == []
