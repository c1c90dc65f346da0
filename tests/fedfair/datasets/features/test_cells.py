"""Cells of a table: they are what the features would be, to the last bit, and take little memory."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.datasets.features.bounded import bounded
from fedfair.datasets.features.cells import Cells, category_counts, with_features
from fedfair.datasets.features.encoder import encode
from fedfair.datasets.features.features import Range, binned, drop_first, leave_out
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.schema import Listed, Schema, prepared
from fedfair.datasets.table import from_table
from fedfair.moments.sums import moment_sums
from fedfair.protocol.task import Task
from tests.for_each import for_each

EDGES = {"age": (30.0, 45.0), "pay": (1.5,)}
SCHEMA = Schema("here", (Range("age", 0, 90), Range("pay", 0, 9)), (
    Listed("town", ("north", "south", "other", "nowhere")), Listed("code", ("1", "2", "missing")),
    Listed("sex", ("f", "m"))))

towns = st.sampled_from(["north", "south", "1", "1.0", "", "other", "missing", "a  b", "North", "é"])
rows = st.lists(st.tuples(st.sampled_from(["20", "30", "44.5", "", "x", "1e3", "-1"]), st.sampled_from(["1", "2", "?"]),
                          towns, st.sampled_from(["1", "2", "02", ""])), min_size=2, max_size=20)


def table(values: list[tuple[str, str, str, str]]) -> pd.DataFrame:
    """Return a table of text with two groups and two labels."""
    frame = pd.DataFrame(values, columns=["age", "pay", "town", "code"], dtype=str)
    return frame.assign(sex=["f", "m"] * (len(frame) // 2) + ["f"] * (len(frame) % 2),
                        good=["no", "yes"] * (len(frame) // 2) + ["no"] * (len(frame) % 2))


def read(frame: pd.DataFrame) -> GroupedDataset:
    """Return the records of a table whose missing values are kept."""
    return from_table(frame, "good", "sex", "keep", numbers=("age", "pay"))


def plain(data: GroupedDataset) -> GroupedDataset:
    """Return the records with a tensor of all features."""
    made = data.x.clone()
    assert type(made) is torch.Tensor
    return replace(data, x=made)


def by_schema(data: GroupedDataset, without: tuple[str, ...] = (), first: bool = False) -> GroupedDataset:
    """Return records with bins and listed categories."""
    made = prepared(leave_out(data, without), SCHEMA, lambda part, ranges: binned(part, EDGES))
    return drop_first(made) if first else made


@given(rows, st.sampled_from([(), ("town=north",), ("code",)]), st.booleans())
@settings(max_examples=25, deadline=None)
def test_features_are_those_of_a_plain_tensor(values: list[tuple[str, str, str, str]], without: tuple[str, ...],
                                              first: bool) -> None:
    data = read(table(values))
    without = tuple(name for name in without if name in {*data.columns} | {
        f"{f.column}={f.category}" for f in data.encoding.features})
    first = first and not without
    change = partial(by_schema, without=without, first=first)
    norm = partial(bounded, kind="binned")
    lazy, known = with_features(with_features(data, change), norm), norm(change(plain(data)))
    assert isinstance(lazy.x, Cells)
    assert lazy.encoding == known.encoding
    assert lazy.x.shape == known.x.shape
    assert torch.equal(lazy.x.clone(), known.x)
    if not without:
        assert torch.equal(encode(table(values), lazy.encoding), known.x)  # as new rows are


@given(rows, st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_portions_add_up_to_the_whole(values: list[tuple[str, str, str, str]], size: int) -> None:
    data = with_features(with_features(read(table(values)), by_schema), partial(bounded, kind="binned"))
    whole = moment_sums(plain(data).x, data.y, data.group, 2, 2, True)
    once = moment_sums(data.x, data.y, data.group, 2, 2, True)
    total = {name: torch.zeros_like(value) for name, value in whole.items()}
    for part in torch.split(torch.arange(len(data)), size):
        own = data.take(part)
        for name, value in moment_sums(own.x, own.y, own.group, 2, 2, True).items():
            total[name] += value
    for name, value in whole.items():
        assert torch.allclose(once[name], value, rtol=0, atol=1e-12)  # counted, in place of added up
        assert torch.allclose(total[name], value, rtol=0, atol=1e-10)


@given(rows, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_sums_of_moments_do_not_depend_on_the_order_of_records(values: list[tuple[str, str, str, str]], random: Random
                                                               ) -> None:
    data = with_features(with_features(read(table(values)), by_schema), partial(bounded, kind="binned"))
    order = [*range(len(data))]
    random.shuffle(order)
    turned = data.take(torch.tensor(order))
    one, other = (moment_sums(part.x, part.y, part.group, 2, 2, True) for part in (data, turned))
    assert all(torch.equal(one[name], other[name]) for name in one)


def some() -> GroupedDataset:
    """Return a few records with features of bounded norm."""
    frame = table([("20", "1", "north", "1"), ("", "2", "south", "2"), ("44.5", "?", "1", ""), ("x", "1", "", "2")])
    return with_features(with_features(read(frame), by_schema), partial(bounded, kind="binned"))


@for_each("use", [
    lambda x: x.sum(0), lambda x: x @ torch.ones(x.shape[1], 2, dtype=x.dtype), lambda x: torch.cat([x, x]),
    lambda x: x[1:3], lambda x: x[torch.tensor([3, 0])], lambda x: x[torch.tensor([True, False, True, False])],
    lambda x: x.index_select(0, torch.tensor([2])), lambda x: x[:, 0], lambda x: x[:, [1, 0]], lambda x: x[0],
    lambda x: x.to(torch.float32), lambda x: x.float(), lambda x: torch.stack([x, x]), lambda x: x.tolist(),
    lambda x: x.numpy(), lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy,  # noqa: S301 - our own
    lambda x: torch.nn.functional.linear(x, torch.ones(2, x.shape[1], dtype=x.dtype)), lambda x: x.isnan().any(),
    lambda x: [*x], lambda x: x.flatten(1), lambda x: x.T, lambda x: 2 * x, lambda x: x[..., -1],
    lambda x: x.to("cpu")])
def test_every_use_gives_what_a_plain_tensor_gives(use: Any) -> None:
    data = some()
    found, expected = use(data.x), use(data.x.clone())
    if isinstance(found, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found.clone(), expected)
    else:
        assert np.array_equal(np.array(found), np.array(expected))


def test_what_is_not_known_is_refused_rather_than_computed_of_nothing() -> None:
    with torch._C.DisableTorchFunctionSubclass(), pytest.raises(TypeError, match="make the features first"):
        some().x + 1


def test_categories_are_counted_without_their_features() -> None:
    data = read(table([("1", "1", "north", "1"), ("1", "1", "south", "2"), ("1", "1", "north", "")]))
    counts = category_counts(data, "town")
    assert counts == category_counts(plain(data), "town") == {"north": 2.0, "south": 1.0}


_MANY = """
import resource
import numpy as np, pandas as pd
from fedfair.datasets.table import from_table
from fedfair.datasets.features.cells import category_counts
frame = pd.DataFrame({"word": [f"word {n}" for n in np.random.default_rng(0).integers(0, 20_000, 60_000)],
                      "sex": ["f", "m"] * 30_000, "good": ["no", "yes", "yes", "no"] * 15_000}).astype("string")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = from_table(frame, "good", "sex", "keep", numbers=())
assert sum(category_counts(data, "word").values()) == 60_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


def test_a_column_of_many_texts_takes_little_memory() -> None:
    """One-hot it would take 60,000 x 19,000 x 8 bytes, 9 GB."""
    made = subprocess.run([sys.executable, "-c", _MANY], capture_output=True, text=True, check=True)
    assert float(made.stdout) < 0.3


def test_the_run_of_a_table_holds_cells(tmp_path: Any) -> None:
    frame = table([(str(20 + n), "1", "north", "1") for n in range(40)])
    frame.to_csv(tmp_path / "t.csv", index=False)
    parts = Task(csv=str(tmp_path / "t.csv"), label="good", group="sex", missing="keep", features="binned",
                 preprocessing="private", numbers=("age", "pay")).data()
    assert all(isinstance(part.x, Cells) for _, part in parts)
