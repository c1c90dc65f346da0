"""Tables of the user's: types, features without the label, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedfair.datasets.table import from_csv, from_frame, group_names
from tests.for_each import for_each


def table() -> pd.DataFrame:
    return pd.DataFrame({"age": [20, 30, 40, 50], "wage": [1.5, 2.5, 3.5, 4.0], "town": ["x", "y", "z", "x"],
                         "smoker": ["no", "yes", "no", "no"], "sex": ["f", "m", "m", "f"], "good": [0, 1, 1, 0]})


def csv(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(folder / "own.csv", index=False)
    return folder / "own.csv"


def test_a_csv_of_the_users(tmp_path: Path) -> None:
    data = from_csv(csv(tmp_path, table()), "good", "sex")
    assert data.numeric == (0, 1)
    assert data.x[:, :2].tolist() == [[20, 1.5], [30, 2.5], [40, 3.5], [50, 4.0]]
    assert set(data.x[:, 2:].unique().tolist()) == {0.0, 1.0}
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.group.tolist() == [0, 1, 1, 0]
    assert (data.names, data.classes) == (("f", "m"), 2)
    assert data.x.dtype == torch.float64
    assert data.y.dtype == data.group.dtype == torch.long


def test_every_value_of_a_category_makes_one_column(tmp_path: Path) -> None:
    data = from_csv(csv(tmp_path, table()), "good", "sex")
    columns = sorted(tuple(column) for column in data.x[:, 2:].t().tolist())
    towns = [(1, 0, 0, 1), (0, 1, 0, 0), (0, 0, 1, 0)]
    assert columns == sorted([*towns, (1, 0, 1, 1), (0, 1, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0)])


def test_a_word_that_counts_as_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing values in town \(2\), in 2 of 4 rows: .* NA, None or null count as"):
        from_csv(csv(tmp_path, table().assign(town=["None", "y", "NA", "x"])), "good", "sex")


def test_the_label_is_not_among_the_features(tmp_path: Path) -> None:
    frame = table().assign(good=[1, 0, 1, 0])
    for label in ("good", "age"):
        data = from_csv(csv(tmp_path, frame), label, "sex")
        assert not any(torch.equal(column, data.y.double()) for column in data.x.t())


def test_numbers_as_labels_and_groups_are_categories_in_sorted_order(tmp_path: Path) -> None:
    data = from_csv(csv(tmp_path, table().assign(good=["no", "yes", "yes", "no"], sex=[2, 1, 1, 2])), "good", "sex")
    assert data.names == ("1", "2")
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.group.tolist() == [1, 0, 0, 1]
    assert data.numeric == (0, 1)


@pytest.mark.parametrize(("values", "names"), [
    ([10, 9, 2, 9], ("2", "9", "10")), ([True, False, True, True], ("False", "True")),
    ([10.0, 1.5, 2.0, 10.0], ("1.5", "2", "10"))])  # a value is named by itself
def test_labels_that_are_numbers_are_sorted_as_numbers(values: list[object], names: tuple[str, ...]) -> None:
    frame = table().assign(sex=values)
    data = from_frame(frame, "good", "sex", ("age", "wage"))
    assert data.names == names
    assert group_names(frame, ["sex"]) == [names[number] for number in data.group.tolist()]


@for_each(("change", "message"), [
    (lambda f: f.assign(age=[1, None, 3, 4], town=["x", None, "y", "z"]),
     r"missing values in age \(1\), town \(1\), in 1 of 4 rows: fill them"),
    (lambda f: f.assign(sex="f"), "column 'sex' has the single value 'f'"),
    (lambda f: f.assign(good=1), "column 'good' has the single value '1'"),
    (lambda f: f.rename(columns={"sex": "sexe"}), "unknown column 'sex': did you mean 'sexe'"),
    (lambda f: f.rename(columns={"good": "goods"}), "unknown column 'good': did you mean 'goods'"),
    (lambda f: f[:0], "."),
])
def test_a_table_that_cannot_be_used_is_refused(change: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        from_csv(csv(tmp_path, change(table())), "good", "sex")  # type: ignore[operator]


def test_infinite_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="age"):
        from_csv(csv(tmp_path, table().assign(age=[1.0, np.inf, 3.0, 4.0])), "good", "sex")


def test_a_column_that_is_label_and_group_is_not_a_feature(tmp_path: Path) -> None:
    data = from_csv(csv(tmp_path, table()), "sex", "sex")
    assert torch.equal(data.y, data.group)
    assert data.x.shape[1] == 3 + 3 + 2


@for_each(("content", "message"), [
    (b"", "is not a complete CSV file"), (b'a,b\n1,"2\n', "is not a complete CSV file|unknown column"),
    (b"good,sex,x\n1,f,2\n0,m,3,4,5\n", "is not a complete CSV file"),
    (b"good,sex,x\n1,f,2,\n0,m,3,\n", "line 2, saw 4.* no row has more values than the first line has names"),
    (b"good,sex,x\n1,f,2,7\n0,m,3,8\n", "line 2, saw 4.* no row has more values than the first line has names"),
    (b"good,sex,x,good\n1,f,2,0\n0,m,3,1\n", "names column 'good' more than once: give each column a name of its own"),
    (b"good,sex,x\n1,f,2\n0,m,3\n1,f\n", "missing values in x"),
    (b"good,sex,x\n1,\xff\xfe\x00\x01,\x80\n", "is not text in UTF-8"),
    (b"good,sex,x\n", "has names of columns, but no records")])
def test_a_truncated_csv_is_refused_in_one_sentence(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        from_csv(tmp_path / "own.csv", "good", "sex")
    assert "\n" not in str(error.value)


def test_columns_without_a_name_are_no_repetition(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(b"good,sex,,\n1,f,3,5\n0,m,2,4\n")
    assert from_csv(tmp_path / "own.csv", "good", "sex").x[:, :2].tolist() == [[3, 5], [2, 4]]


def test_a_csv_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        from_csv(tmp_path / "none.csv", "good", "sex")
