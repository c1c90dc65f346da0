"""Published splits are what their names say, or the data are refused."""

from __future__ import annotations

import pandas as pd
import pytest

from fedfair.datasets.hugging_face import parts_of, refuse_hidden_labels
from tests.for_each import for_each


@for_each(("names", "parts"), [
    ("train test", (0, 2)), ("train validation test", (0, 1, 2)), ("training testing", (0, 2)),
    ("train val test", (0, 1, 2)), ("Train dev Test", (0, 1, 2)), ("train eval", (0, 2)),
    ("train eval test", (0, 1, 2)),
    ("train valid", (0, 2)), ("train development holdout", (0, 1, 2)), ("train", (-1,)), ("en fr", (-1, -1)),
    ("train validation_matched validation_mismatched test_matched", (0, 1, 1, 2))])
def test_usual_names(names: str, parts: tuple[int, ...]) -> None:
    assert parts_of(names.split()) == dict(zip(names.split(), parts, strict=True))


def test_what_is_no_part_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    assert parts_of(["train", "unsupervised", "test"]) == {"train": 0, "test": 2}
    assert "left out: the published split unsupervised" in caplog.text
    parts_of(["train", "validation"])
    assert "the validation part stands for it" in caplog.text


def check(train: list[object], test: list[object]) -> None:
    labels = pd.Series([*train, *test], dtype=object)
    refuse_hidden_labels(labels, pd.Series([0] * len(train) + [2] * len(test)))


@for_each(("test", "message"), [
    ([-1, -1], r"are hidden \(-1\)"), (["?", "?"], r"are hidden \(\?\)"), ([None, None], r"are hidden \(no value\)"),
    ([1, -1], "are hidden"), ([9, 1], "a class that no other part has, '9'"), (["x"], "no other part has, 'x'")])
def test_hidden_labels_are_refused(test: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check([0, 1, 0, 1], test)


def test_labels_that_are_known_are_not() -> None:
    check([-1, 0, 1], [-1, 0])
    check([0, 1], [0, 1, None])
    check([0, 1], [])
