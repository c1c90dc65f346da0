"""The encoder: the features of the training rows, and the same features for the same rows when they come again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fedfair.datasets import DATASETS
from fedfair.datasets.columns.cell import Column
from fedfair.datasets.features.encoder import encode
from fedfair.datasets.features.encoding import Encoding, Feature, Scaling
from fedfair.datasets.published import tables
from fedfair.datasets.table import from_frame, from_table
from fedfair.protocol.task import Task
from tests.for_each import for_each

ROWS = 200


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Make a table with all kinds of columns, as text in a file."""
    draws = np.random.default_rng(0)
    return pd.DataFrame({
        "age": draws.integers(18, 90, ROWS),
        "pay": [f"{value:,}" for value in draws.integers(900, 90_000, ROWS)],
        "rate": [f"{value:.{digits}f}".replace(".", ",")
                 for value, digits in zip(draws.uniform(0, 9, ROWS), draws.integers(2, 4, ROWS), strict=True)],
        "city": draws.choice([" north", "south ", "east", "1"], ROWS),
        "member": draws.choice([True, False], ROWS),
        "answer": draws.choice(["yes", "no"], ROWS),
        "code": draws.choice(["4", "7", "9"], ROWS),
        "always": "one",
        "race": draws.integers(1, 4, ROWS),
        "vote": draws.choice(["granted", "denied"], ROWS)})


@for_each("settings", [
    {}, {"drop_first": True}, {"without": ("city=east", "age", "answer")}, {"group": "race,city"},
    {"ranges": {"age": [20, 70], "pay": [1000, 50_000], "rate": [0, 8], "code": [4, 9]}},
    {"ranges": {"age": [20, 70], "pay": [1000, 50_000], "rate": [0, 8], "code": [4, 9], "race": [1, 3]},
     "without": ("member=False",)}])
@for_each("kept_as", [str, None])
def test_rows_are_encoded_as_those_that_were_trained_on(frame: pd.DataFrame, settings: Any, kept_as: type | None,
                                                        tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    frame.to_csv(file, index=False)
    parts = Task(**{"csv": str(file), "label": "vote", "group": "race", "dtype": "float64",
                    "attribute_in_model": True, **settings}).data()
    encodings = TypeAdapter(Encoding)
    saved = encodings.validate_json(encodings.dump_json(parts.train.encoding))
    for _, part in parts:
        assert part.encoding == parts.train.encoding == saved
        rows = pd.read_csv(file, dtype=kept_as).iloc[part.records.numpy()]
        assert torch.equal(encode(rows, part.encoding), part.x)
        for row in range(2):  # alone, most commas could be between thousands
            assert torch.equal(encode(rows[row : row + 1], part.encoding), part.x[row : row + 1])


KINDS = {
    "whole": st.integers(-9, 9), "real": st.floats(-1e6, 1e6), "bool": st.booleans(),
    "words": st.sampled_from(["a", " b", "A", "1", "01", "1,5", " 1,5", "true", "N/A ", "x & y", "1 = 2"]),
    "comma": st.sampled_from(["1,5", "1,250", "12", "-7,5", " 3"]),
    "thousands": st.sampled_from(["1,250", "12,000", "7"]),
}
GROUPS = ("whole", "words", "bool")


def one_hot(frame: pd.DataFrame, label: str, numeric: tuple[str, ...]) -> torch.Tensor:
    """Return what pandas makes of a complete table: the oracle."""
    kinds = frame.drop(columns=[label, *numeric]).astype(str)
    made = pd.concat([frame[[*numeric]].astype("float64"), pd.get_dummies(kinds, dtype="float64")], axis=1)
    return torch.tensor(made.to_numpy(), dtype=torch.float64)


@pytest.mark.parametrize("name", ["adult", "bank", "compas", "credit", "dutch", "law"])
def test_published_tables_have_the_features_that_pandas_makes(name: str, data_dir: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[Any]()

    def kept(frame: pd.DataFrame, label: str, group: str, numeric: tuple[str, ...] = ()) -> object:
        read.append((frame, label, numeric))
        return from_frame(frame, label, group, numeric)

    monkeypatch.setattr(tables, "from_frame", kept)
    made = DATASETS[name].load(None)
    (frame, label, numeric), = read
    assert torch.equal(made.x, one_hot(frame, label, numeric))
    assert torch.equal(made.x, encode(frame, made.encoding))
    some = frame.sample(20, random_state=0)
    assert torch.equal(encode(some.astype(str), made.encoding), encode(some, made.encoding))


@given(st.lists(st.tuples(st.integers(-9, 9), st.floats(-1e300, 1e300), st.text(max_size=3), st.booleans()),
                min_size=2, max_size=12), st.sampled_from([(), ("whole", "real"), ("real",)]))
def test_any_complete_table_has_the_features_that_pandas_makes(rows: list[tuple[int, float, str, bool]],
                                                               numeric: tuple[str, ...]) -> None:
    frame = pd.DataFrame(rows, columns=["whole", "real", "text", "bool"])
    frame["label"] = [row % 2 for row in range(len(frame))]
    made = from_frame(frame, "label", "label", numeric)
    assert torch.equal(made.x, one_hot(frame, "label", numeric))
    assert torch.equal(made.x, encode(frame, made.encoding))


@given(st.data(), st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=4), st.sampled_from(GROUPS))
def test_any_rows_become_what_the_table_became(data: st.DataObject, kinds: list[str], group: str) -> None:
    """Whatever rows of a table stand alone, as other rows may."""
    size = data.draw(st.integers(2, 12))
    drawn = {f"{kind} {place}": data.draw(st.lists(KINDS[kind], min_size=size, max_size=size))
             for place, kind in enumerate([*kinds, group])}
    table = pd.DataFrame({**drawn, "label": [row % 2 for row in range(size)]})
    try:
        made = from_table(table, "label", f"{group} {len(kinds)}")
    except ValueError:  # a single group, or a text in every row
        return
    rows = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=size))
    assert torch.equal(encode(table.iloc[rows], made.encoding), made.x[rows])


ENCODING = Encoding((Feature("age", scaling=Scaling(40.0, 10.0)), Feature("share", scaling=Scaling(2.0, 4.0, True)),
                     Feature("sex", "m"), Feature("code", "01"), Feature("code", "A"), Feature("kind", "1")),
                    (Feature("sex", "f"), Feature("kind", "2")))
GIVEN = {"age": [50, 35], "share": [1, 4], "sex": ["f", "m"], "code": ["01", "A"], "kind": [1.0, 2.0]}


def test_every_feature_is_made_of_its_column() -> None:
    expected = [[1.0, 0.0, 0.0, 1.0, 0.0, 1.0], [-0.5, 0.5, 1.0, 0.0, 1.0, 0.0]]
    rows = pd.DataFrame({"unread": [None, "x"], **GIVEN}, index=[7, 7])
    assert encode(rows, ENCODING).tolist() == expected
    assert encode(rows[:1], ENCODING).tolist() == expected[:1]  # where all codes look like numbers
    assert encode(rows[:0], ENCODING).shape == (0, 6)


@for_each(("changed", "message"), [
    ({"sex": ["f", "x"]}, "unknown category of column 'sex', in row 2, 'x': known are f, m"),
    ({"sex": ["f", None]}, "column 'sex' has no value in row 2: fill it"),
    ({"age": [50, "?"]}, "column 'age' has no value in row 2"),
    ({"age": ["old", "35"]}, "column 'age' has 'old' in row 1, where the model needs a finite number"),
    ({"share": [1, np.inf]}, "column 'share' has 'inf' in row 2")])
def test_rows_that_cannot_be_encoded_are_refused(changed: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(pd.DataFrame({**GIVEN, **changed}, index=[5, 6]), ENCODING)


@for_each("missing", [None, np.nan, "?", ""])
def test_a_missing_value_is_an_other_one_where_the_encoding_lists_other(missing: Any) -> None:
    encoding = Encoding(tuple(Feature("sex", text) for text in ("f", "other")), listed=("sex",))
    rows = pd.DataFrame({"sex": ["f", missing, "x"]})
    assert encode(rows, encoding).argmax(1).tolist() == [0, 1, 1]


def test_a_text_may_be_the_number_that_it_is_for_a_whole_file() -> None:
    assert encode(pd.DataFrame({**GIVEN, "kind": ["01", " 2"]}), ENCODING)[:, -1].tolist() == [1, 0]


def test_a_text_may_have_spaces_around_it_and_still_be_no_number() -> None:
    encoding = Encoding((Feature("size", "1,5"), Feature("size", "large")))
    assert encode(pd.DataFrame({"size": [" 1,5"]}), encoding).tolist() == [[1, 0]]


def test_a_number_that_two_categories_write_is_neither_unless_it_is_written_so() -> None:
    encoding = Encoding(tuple(Feature("code", text) for text in ("01", "1", "2", "A")))
    assert encode(pd.DataFrame({"code": ["01", "1", "2.0"]}), encoding).argmax(1).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"unknown category .*, in row 1, '1\.0': .*known are 01, 1, 2, A"):
        encode(pd.DataFrame({"code": ["1.0", "A"]}), encoding)


@for_each("code", ["12345678901234568", "12345678901234568.0", "12345678901234566", 12345678901234568,
                   1.2345678901234568e16, "1.2345678901234568e+16", "12345678901234569"])
def test_a_code_of_many_digits_is_none_that_a_double_takes_for_it(code: str | float) -> None:
    known = ("12345678901234567", "2")
    encoding = Encoding(tuple(Feature("code", text) for text in known))
    with pytest.raises(ValueError, match="unknown category of column 'code'"):
        encode(pd.DataFrame({"code": [code]}), encoding)
    column = Column("code", known, None, None, frozenset(), frozenset(), ".", False)
    assert [column.category(cell) for cell in (code, known[0], f"{known[0]}.0", int(known[0]), 2.0)] == [
        None, known[0], known[0], known[0], "2"]


def test_a_double_is_the_code_that_doubles_of_the_training_were() -> None:
    doubles = Column("code", ("1152921504606846976", "2"), None, None, frozenset(), frozenset(), ".", False)
    assert doubles.category(2.0**60) == "1152921504606846976"
    assert doubles._replace(known=("1152921504606846976", "1152921504606846977")).category(2.0**60) is None


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="the rows have no column 'age', 'sex': the model was trained on age, share"):
        encode(pd.DataFrame(GIVEN).drop(columns=["age", "sex"]), ENCODING)
