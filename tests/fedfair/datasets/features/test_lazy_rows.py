"""Images and numbers in a file: they are what a tensor of all would be, and take no memory until they are used."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.datasets.features import lazy_rows
from fedfair.datasets.features.image_features import filters
from fedfair.datasets.features.kept_table import kept_table
from fedfair.datasets.features.lazy_rows import Images, NumberFile
from fedfair.datasets.files.chunks import Chunks
from fedfair.datasets.grouped import GroupedDataset, Pixels
from tests.for_each import for_each

SIDE = 16


def drawn(number: int, channels: int = 3) -> Iterator[NDArray[np.uint8]]:
    """Yield images that differ in every byte, about."""
    draws = np.random.default_rng(number)
    for _ in range(number):
        yield draws.integers(0, 256, (channels, SIDE, SIDE), dtype=np.uint8)


def both(number: int) -> tuple[Images, torch.Tensor]:
    """Return images in a file, and the same in memory."""
    return Images.written(drawn(number)), torch.from_numpy(np.stack([*drawn(number)]))


@for_each("use", [
    lambda x: x[1:3], lambda x: x[torch.tensor([3, 0, 3])], lambda x: x[torch.tensor([True, False, True, False])],
    lambda x: x.index_select(0, torch.tensor([2])), lambda x: x[2:][torch.tensor([1, 0])], lambda x: x[:0], lambda x: x,
    lambda x: x[0], lambda x: x[:, 0], lambda x: x[..., -1], lambda x: x.to("cpu"), lambda x: x.to(torch.float32),
    lambda x: torch.cat([x, x]), lambda x: torch.stack([x, x]), lambda x: x.flatten(1).double(), lambda x: x.float(),
    lambda x: x == 7, lambda x: x.numpy(), lambda x: x.tolist(), lambda x: [*x], lambda x: x.nbytes, copy.deepcopy,
    lambda x: pickle.loads(pickle.dumps(x)), lambda x: [*map(len, torch.split(x, 3))], filters])  # noqa: S301 - our own
def test_every_use_gives_what_a_plain_tensor_gives(use: Any) -> None:
    found, expected = map(use, both(4))
    if isinstance(found, torch.Tensor):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert torch.equal(found.clone(), expected)
    else:
        assert np.array_equal(np.array(found), np.array(expected))


@given(st.lists(st.lists(st.integers(0, 8), min_size=9, max_size=12), max_size=3))
def test_parts_of_parts_are_those_of_a_plain_tensor(taken: list[list[int]]) -> None:
    lazy, plain = both(9)
    for rows in taken:
        lazy, plain = lazy[torch.tensor(rows)], plain[torch.tensor(rows)]
        assert type(lazy) is Images
    assert torch.equal(lazy.made(), plain)


def test_records_are_the_same_from_a_file_and_in_memory() -> None:
    def records(x: torch.Tensor) -> GroupedDataset:
        """Return records of which the first and the last are equal."""
        which = torch.tensor([0, 1, 2, 3, 0])
        numbers = which % 2
        return GroupedDataset(x[which], numbers, numbers, ("a", "b"), 2, pixels=Pixels(0.5, 0.5, torch.float32))

    lazy, plain = map(records, both(4))
    assert torch.equal(lazy.features(torch.tensor([4, 1])), plain.features(torch.tensor([4, 1])))
    assert [part.tolist() for part in lazy.distinct] == [part.tolist() for part in plain.distinct] == [
        [0, 1, 2, 3], [2, 1, 1, 1]]
    assert lazy.without_records().x.untyped_storage().nbytes() == 0


def test_images_take_no_memory_until_they_are_used() -> None:
    number, size = 2000, 3 * SIDE**2
    Images.written(drawn(1)).made()  # what is imported then is no memory of the images
    tracemalloc.start()
    try:
        images = Images.written(drawn(number))
        batch = images[torch.arange(0, number, 100)].made()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(batch) == 20
    assert most < number * size / 5


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> IO[bytes]:
        """Open a file on a disk without room."""
        return open("/dev/full", "wb")

    monkeypatch.setattr(lazy_rows, "TemporaryFile", full)
    with pytest.raises(OSError, match=r"the records have no room in .*: make room, or set TMPDIR to a folder on"):
        Images.written(drawn(1))


@for_each("sizes", [[3], [2, 0, 1], [0], [1, 1, 5]])
def test_numbers_of_chunks_are_one_column(sizes: list[int]) -> None:
    draws, file = np.random.default_rng(0), NumberFile(["a", "b"])
    chunks = [{name: draws.normal(size=size) for name in "ab"} for size in sizes]
    for chunk in chunks:
        file.append(chunk)
    for name in "ab":
        lazy = file.column(name)
        whole = torch.from_numpy(np.concatenate([chunk[name] for chunk in chunks]))
        rows = torch.arange(len(whole)).flip(0)[::2]
        assert torch.equal(lazy.made(), whole)
        assert torch.equal(lazy[rows][rows[:1] * 0].made(), whole[rows][rows[:1] * 0])
        assert torch.equal(lazy + 1, whole + 1)
        assert torch.equal(copy.deepcopy(lazy) - 1, whole - 1)


def test_numbers_of_a_table_take_no_memory_until_they_are_used() -> None:
    rows, times, numbers = 1000, 100, [f"n{place}" for place in range(20)]

    def frames() -> Iterator[pd.DataFrame]:
        """Yield chunks of a table."""
        for _ in range(times):
            yield pd.DataFrame(np.ones((rows, len(numbers))), columns=numbers).assign(y="yes")

    read = reading_as_asked(Asked())
    kept_table(Chunks([*numbers, "y"], frames, None), read, "y", numbers)  # what is imported then is no memory of it
    tracemalloc.start()
    try:
        table = kept_table(Chunks([*numbers, "y"], frames, None), read, "y", numbers)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(table.frame), float(table.numbers["n7"].sum())) == (rows * times, rows * times)
    assert most < 8 * rows * times * len(numbers) / 3


def test_only_rows_with_a_label_have_numbers() -> None:
    frame = pd.DataFrame({"n": [1.0, 2.0, 3.0], "y": ["yes", None, "no"]})
    table = kept_table(Chunks(["n", "y"], lambda: iter([frame[:2], frame[2:]]), None), reading_as_asked(Asked()), "y",
                       ("n",))
    assert (table.numbers["n"].tolist(), table.frame.index.tolist(), table.rows) == ([1.0, 3.0], [0, 2], 3)
