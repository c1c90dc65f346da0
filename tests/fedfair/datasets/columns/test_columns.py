"""What columns of a table are taken as, one kind after the other."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedfair.datasets.columns.convention import Asked, as_read
from fedfair.datasets.columns.kinds import Column, understand
from fedfair.datasets.columns.tidy import reading_of, tidied
from fedfair.datasets.files.table_file import read_table
from fedfair.datasets.table import from_csv, from_table
from tests.for_each import for_each

ROWS = 60


def table(**columns: Any) -> pd.DataFrame:
    """Make a table with a label and a group; every column is repeated to its end."""
    named = {"good": [0, 1, 1], "sex": ["f", "m"], **columns}
    return pd.DataFrame({name: [values[i % len(values)] for i in range(ROWS)] for name, values in named.items()})


def column(values: list[Any], name: str = "x", asked: Asked = Asked()) -> Column:  # noqa: B008
    """Return what one column is taken as."""
    frame = table(**{name: values})
    reading = reading_of(frame, asked)
    columns = understand(tidied(frame, reading), "good", "sex", asked=as_read(asked, reading))
    return next(column for column in columns if column.name == name)


@for_each(("values", "kind", "words"), [
    ([3, 1, 2], "number", "1 to 3"), ([0, 1], "number", "0 to 1"), ([1.5, None, 2.0], "number", "1.5 to 2.0"),
    (["1", " 2", "3 "], "number", "1 to 3"), (["1.5", "?", "-2"], "number", "-2.0 to 1.5"),
    (["1,250", "13,000", "7"], "number", "7 to 13000"), (["1,2", "13", "-3,45"], "number", "-3.45 to 13.0"),
    (["1,2", "3,4,5"], "category", "2: 1,2, 3,4,5"), (["0", "1", "2", "3+"], "category", "4: 0, 1, 2, 3+"),
    ([True, False], "boolean", "2: True, False"), (["yes", "No"], "boolean", "2: yes, No"),
    (["yes", "no", "perhaps"], "category", "3: yes, no, perhaps"), (["x", " x", "y", ""], "category", "2: x, y"),
    (list("abcdefgh"), "category", "8: a, b, c, d, e, ..."), (["1", "2", "many"], "category", "3: 1, 2, many"),
    (["same"], "single value", "1: same"), ([7], "single value", "1: 7"), ([None], "single value", "0: "),
    (["1999-12-01", "2001-02-03T10:00"], "date", "1999-12-01 to 2001-02-03T10:00"),
    (["1.2.1999", "31.12.2001"], "date", "1.2.1999 to 31.12.2001"),
    (["12/24/99", "1/2/03"], "date", "1/2/03 to 12/24/99"),
    ([f"person {i}" for i in range(ROWS)], "identifier", "60: person 0, person 1, person 2, person 3, person 4, ..."),
    (list(range(ROWS)), "number", "0 to 59")])
def test_what_a_column_is_taken_as(values: list[Any], kind: str, words: str) -> None:
    found = column(values)
    assert (found.kind, found.values) == (kind, words)
    assert (found.problem is None) == (kind not in ("date", "identifier"))


@pytest.mark.parametrize("values", [["2001-02-03", "2004-05-06T10:00"], pd.to_datetime(["2001-02-03", "2004-05-06"])])
def test_dates_are_numbers_of_days_if_the_user_says_so(values: Any) -> None:
    found = column(list(values))
    assert found.kind == "date"
    assert 'quantities = { x = "date" }' in str(found.problem)
    found = column(list(values), asked=Asked(quantities=(("x", "date"),)))
    assert (found.kind, found.values, found.problem) == ("number", "2001-02-03 to 2004-05-06", None)


def test_row_numbers_are_those_that_a_program_wrote() -> None:
    assert column(list(range(ROWS)), "Unnamed: 0").kind == "row number"
    assert column(list(range(0, 2 * ROWS, 2)), "Unnamed: 0").kind == "row number"  # rows were dropped since
    assert column(list(range(ROWS, 0, -1)), "Unnamed: 0").kind == "number"


@pytest.mark.parametrize(("values", "missing"), [([1, None, None], 40), (["a", "?", " "], 40), (["a", "b"], 0)])
def test_missing_values_are_counted(values: list[Any], missing: int) -> None:
    assert column(values).missing == missing


def test_label_group_and_participant_are_what_they_are_said_to_be() -> None:
    frame = tidied(table(who=[f"p{i}" for i in range(ROWS)]))
    assert [c.kind for c in understand(frame, "good", "sex", "who")] == ["label", "group", "participant"]
    assert [c.kind for c in understand(frame[["sex"]], "sex", "sex")] == ["label and group"]
    assert all(c.problem is None for c in understand(frame, "good", "sex", "who"))


@for_each(("columns", "message"), [
    ({"born": ["1999-12-01", "2001-02-03"]}, "column 'born' holds dates, such as 1999-12-01: turn them into numbers"),
    ({"name": [f"p{i}" for i in range(ROWS)]}, "column 'name' has 60 different texts in 60 rows, as names have"),
    ({"good": [i / 7 for i in range(101)]}, None),
    ({"age": [*map(str, range(20, 79)), "young"]}, r"'age' has numbers, but also 'young' in row 60: correct that"),
    ({"age": [*map(str, range(20, 79)), "Unknown"]}, r"missing values in age \(1\)"),
    ({"town": ["x", None], "age": [1, 2, None, 4]}, r"values in town \(30\), age \(15\), in 45 of 60 rows: fill them"),
    ({"born": ["1.2.1999"] * 2 + ["3.4.2001"], "name": [f"p{i}" for i in range(ROWS)]}, "'born' .*; column 'name'"),
    ({"sex": ["f", None]}, r"missing values in sex \(30\)"), ({"good": [1, "?"]}, r"missing values in good \(30\)"),
    ({"age": [1.0, np.inf]}, "infinite values in age")])
def test_what_cannot_be_used_is_refused_with_names_and_a_remedy(columns: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert from_table(table(**columns), "good", "sex").classes == ROWS
        return
    with pytest.raises(ValueError, match=message):
        from_table(table(**columns), "good", "sex")


def test_columns_that_are_left_out_are_not_read() -> None:
    usable = table(age=[1, 2, 3], town=["x", "y"])
    others = {"name": [f"p{i}" for i in range(ROWS)], "born": ["1999-12-01", "2001-02-03"], "seen": [1, None],
              "empty": [None]}
    data = from_table(table(age=[1, 2, 3], town=["x", "y"], **others), "good", "sex", without=list(others))
    plain = from_table(usable, "good", "sex")
    assert (data.columns, data.categories) == (plain.columns, plain.categories)
    assert torch.equal(data.x, plain.x)
    left = from_table(table(age=[1, 2, 3], town=["x", "y"], **others), "good", "sex",
                      without=[*others, "sex", "town=x"])
    assert left.columns == ("age", "town")
    assert torch.equal(left.group, plain.group)
    with pytest.raises(ValueError, match="unknown column 'tow': did you mean 'town'"):
        from_table(usable, "good", "sex", without=["tow"])
    with pytest.raises(ValueError, match=r'nothing can be learned from it; leave it out with without = \["name"\]'):
        from_table(table(**others), "good", "sex", "drop", without=["empty", "born", "seen"])


def test_a_label_or_group_needs_few_values() -> None:
    frame = pd.DataFrame({"good": [i / 7 for i in range(300)], "sex": ["f", "m", "d"] * 100})
    for label, group in (("good", "sex"), ("sex", "good")):
        with pytest.raises(ValueError, match=r"'good' .* 300 different values, too many for a (label|group)"):
            from_table(frame, label, group)


def test_too_many_texts_are_refused() -> None:
    frame = pd.DataFrame({"good": [0, 1] * 2000, "sex": ["f", "m"] * 2000,
                          "zip": [f"z{i % 1500}" for i in range(4000)]})
    with pytest.raises(ValueError, match="column 'zip' has 1,500 different texts, and each would be a feature"):
        from_table(frame, "good", "sex")


def test_rows_with_missing_values_are_dropped_on_request(caplog: pytest.LogCaptureFixture) -> None:
    frame = table(age=[1, None, 3, 4, 5], town=["x", "y", "z", "?"], code=[1, 2], good=[1, 0, None])
    whole = frame.replace("?", None).dropna()
    with caplog.at_level(logging.WARNING):
        data = from_table(frame, "good", "sex", "drop")
    assert len(data) == len(whole) == 24
    assert data.x[:, 0].tolist() == whole["age"].tolist()
    assert data.y.tolist() == whole["good"].astype(int).tolist()
    assert "left out: rows with missing values in good (20), age (12), town (15), in 36 of 60 rows" in caplog.text


def test_labels_and_groups_are_whole_numbers_though_others_are_missing() -> None:
    assert from_table(table(sex=[1, 2, None]), "good", "sex", "drop").names == ("1", "2")


def test_nothing_is_left_when_no_row_is_complete() -> None:
    with pytest.raises(ValueError, match=r"no row is complete; fill them, or leave those columns out by without"):
        from_table(table(a=[None, 1], b=[1, None]), "good", "sex", "drop")


def test_columns_with_nothing_to_learn_from_are_left_out_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    frame = table(age=[1, 2, 3], same=["x"], empty=[None], **{"Unnamed: 0": list(range(ROWS))})
    with caplog.at_level(logging.WARNING):
        data = from_table(frame, "good", "sex")
    assert data.x.shape == (ROWS, 1 + 2)
    assert "left out, with nothing to learn from: column same, empty, Unnamed: 0" in caplog.text


def test_a_label_that_is_the_group_beside_numbers_alone() -> None:
    frame = pd.DataFrame({"digit": [0, 1, 2] * 20, "pixel": [i / 60 for i in range(60)]})
    data = from_table(frame, "digit", "digit")
    assert (data.names, data.x.shape) == (("0", "1", "2"), (60, 1))
    with pytest.raises(ValueError, match="no column but the label 'digit'"):
        from_table(frame[["digit"]], "digit", "digit")


def test_the_participant_is_no_feature() -> None:
    data = from_table(table(age=[1, 2, 3], who=["carol", "bob", "ann", "bob"]), "good", "sex", participant="who")
    assert data.participant.tolist() == [[2, 1, 0, 1][i % 4] for i in range(ROWS)]
    assert data.x.shape == (ROWS, 1 + 2)
    by_group = from_table(table(age=[1, 2, 3]), "good", "sex", participant="sex")
    assert torch.equal(by_group.participant, by_group.group)
    with pytest.raises(ValueError, match="unknown column 'whoo': did you mean 'who'"):
        from_table(table(who=["a", "b"]), "good", "sex", participant="whoo")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_values_may_be_separated_otherwise(separator: str, tmp_path: Path) -> None:
    table(age=[1, 2, 3]).to_csv(tmp_path / "own.csv", sep=separator, index=False)
    assert from_csv(tmp_path / "own.csv", "good", "sex").x.shape == (ROWS, 3)
    assert list(read_table(tmp_path / "own.csv").frame) == ["good", "sex", "age"]


def test_a_missing_number_says_nothing_of_the_commas_of_the_others() -> None:
    frame = pd.DataFrame({"rate": ["1,5", "", "1,250"], "pay": ["1,500", "?", "unknown"]})
    reading = reading_of(frame, Asked())
    assert reading.decimal == ","
    found = tidied(frame, reading)
    assert found["rate"].dropna().tolist() == [1.5, 1.25]
    assert found["pay"].dropna().tolist() == [1.5]  # one convention for a table
    assert tidied(frame[2:], reading)["rate"].tolist() == [1.25]
