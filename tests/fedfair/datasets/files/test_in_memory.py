"""Data in memory: they become a file that every process reads, and nobody else."""

from __future__ import annotations

import os
import platform
import stat
import subprocess
import sys
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import TensorDataset

from fedfair.datasets.columns.cell import Column
from fedfair.datasets.columns.convention import Asked
from fedfair.datasets.columns.texts import ALWAYS, AMONG_NUMBERS
from fedfair.datasets.columns.tidy import reading_as_asked
from fedfair.datasets.features.kept_table import kept_table
from fedfair.datasets.files import data_frames, in_memory
from fedfair.datasets.files.chunks import chunks_of
from fedfair.protocol.task import Task
from simulations.settings.experiment import Experiment
from tests.for_each import for_each

ROWS = 60


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the files of a test in its own folder."""
    monkeypatch.setattr(in_memory.pooch, "os_cache", lambda project: tmp_path / project)
    return tmp_path


def people() -> pd.DataFrame:
    draws = np.random.default_rng(0)
    return pd.DataFrame({"age": draws.integers(18, 90, ROWS), "town": draws.choice(["x", "y"], ROWS),
                         "sex": draws.choice(["f", "m"], ROWS), "good": draws.integers(0, 2, ROWS)})


def test_a_table_in_memory_is_the_same_as_in_a_file(cache: Path) -> None:
    people().to_csv(cache / "own.csv", index=False)
    file = Task(csv=str(cache / "own.csv"), label="good", group="sex").data()
    made = Experiment(csv=people(), label="good", group="sex")
    assert torch.equal(made.task.data().train.x, file.train.x)
    assert made.task.data().train.columns == file.train.columns
    assert Task.model_validate_json(made.task.text).data().train.x.equal(file.train.x)  # as another process does
    assert Experiment(csv=people(), label="good", group="sex").csv == made.csv
    assert stat.S_IMODE(Path(str(made.csv)).stat().st_mode) == 0o600


def test_arrays_and_torch_data_sets_are_tables() -> None:
    x, y, group = torch.arange(120.0).view(ROWS, 2), torch.arange(ROWS) % 2, torch.arange(ROWS) % 3
    frame = data_frames.frame_of_dataset(TensorDataset(x, y, group))
    pd.testing.assert_frame_equal(frame, data_frames.frame_of(x.numpy(), y.numpy(), group.numpy()))
    data = Task(csv=frame, label="label", group="group").data().train
    assert data.columns[:2] == ("x0", "x1")
    assert data.names == ("0", "1", "2")


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match="give x as"):
        data_frames.frame_of(np.zeros((3, 2, 2)), [0, 1, 1], [0, 1, 1])
    with pytest.raises(ValueError, match=r"an example is not \(features, label, group\)"):
        data_frames.frame_of_dataset(TensorDataset(torch.zeros(3, 2), torch.zeros(3)))
    with pytest.raises(ValueError, match="make the values of each column of one kind"):
        in_memory.written(pd.DataFrame({"a": [1j, 2j]}))


CELLS: list[Any] = [5, 2.0, 2.5, True, "x", "\ud800", b"\xff", [1], {"a": 1}, {1}, object(), 2**70, Decimal("1.5"),
                    np.array([1, 2]), 1j, pd.Timestamp("2020-01-01 03:04"), date(2020, 1, 1), None]


@for_each("others", [["a", "b"], [1, 2**60 + 1], [1.0, 2.5], [pd.Timestamp("2020-01-01")] * 2,
                     [b"a", b"b"], [Decimal("1.50"), Decimal(2)], [True, False]])
def test_a_cell_of_another_kind_changes_no_other(others: list[Any]) -> None:
    """Nor whether the table can be written."""
    read = []
    for cell in (others[0], *CELLS):
        column = pd.Series([cell, *others], dtype=object)
        table = chunks_of(in_memory.written(pd.DataFrame({"n": column, "c": column, "y": "yes"})))
        frame = pd.concat(kept_table(table, reading_as_asked(Asked()), "y", ("n",), ("c", "y")).columns("nc"), axis=1)
        read.append((frame["n"].tolist()[1:], frame["c"].astype(str).tolist()[1:]))
    names = {tuple(names) for _, names in read}
    assert len(names) == 1
    if not isinstance(others[0], pd.Timestamp | bool):  # which are numbers by their type alone
        assert all(np.array_equal(numbers, read[0][0], equal_nan=True) for numbers, _ in read)


AGES = pd.Series([20, 50, 30, 70])
TYPED = {"intervals": (pd.cut(AGES, [0, 40, 90]), None), "codes": (AGES.astype("category"), "x"),
         "dates": (pd.Series([date(2020, 1, 1)] * 4), "x"),
         "durations": (pd.Series([timedelta(1)] * 4, dtype=object), 5)}
"""Columns, and a cell that one may have in place of its first."""


@pytest.mark.parametrize("kind", TYPED)
def test_a_cell_of_a_column_with_a_type_of_its_own_changes_no_other(kind: str) -> None:
    """Neither names of intervals, which a gap makes doubles, nor what a column is taken for."""
    column, cell = TYPED[kind]
    other = pd.Series([cell, *column[1:]])
    other = other if kind in ("dates", "durations") else other.astype("category")
    read = []
    for values in (column, other):
        table = chunks_of(in_memory.written(pd.DataFrame({"n": values, "c": values, "y": "yes"})))
        frame = pd.concat(kept_table(table, reading_as_asked(Asked()), "y", ("n",), ("c", "y")).columns("nc"), axis=1)
        read.append((frame["n"].tolist()[1:], frame["c"].tolist()[1:], [name for name, _ in table.declared]))
    assert repr(read[0]) == repr(read[1])


class Level(str, Enum):  # noqa: UP042 - what str does to a member differs by version
    """A text that is written otherwise than it is."""

    LOW, HIGH = "low", "high"


@for_each("cells", [[b"a", b"\xff"], [timedelta(1), timedelta(hours=-3, microseconds=5)], [*Level],
                    [date(2020, 1, 1), date(1960, 5, 5)], [time(3), time(13, 30, 5)], [2.0, 2.5],
                    [True, False], [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01 03:04")]])
def test_a_value_has_one_name_in_the_training_and_in_new_rows(cells: list[Any]) -> None:
    table = chunks_of(in_memory.written(pd.DataFrame({"c": pd.Series(cells, dtype=object), "y": "yes"})))
    frame = kept_table(table, reading_as_asked(Asked()), "y", (), ("c", "y")).frame
    column = Column("c", None, None, None, ALWAYS, AMONG_NUMBERS, ".", False)
    assert frame["c"].tolist() == [column.text(cell) for cell in cells]


def test_categories_of_durations_are_durations() -> None:
    stays = pd.DataFrame({"stay": pd.Categorical([pd.Timedelta(days=1), pd.Timedelta(days=3)])})
    assert data_frames.as_pandas(stays)["stay"].dtype.kind == "m"


def test_what_a_killed_program_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """But not what belongs to a program that runs, or to another machine."""
    tables = tmp_path / "fedfair" / "tables"
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    names = [f"{platform.node()}-{killed.pid}-a", f"{platform.node()}-{os.getpid()}-b", f"other-{killed.pid}-c"]
    for name in names:
        (tables / name).mkdir(parents=True)
        (tables / name / in_memory.FILE).touch()
    own = in_memory.written(people().assign(alone=1))
    assert {folder.name for folder in tables.iterdir()} == {*names[1:], own.parent.name}
    assert own in in_memory.files_of_this_process()


class Pickled(pa.ExtensionType):
    """Values of any kind, each as a pickle, as Ray holds texts with a gap."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "tests.pickled")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    def __arrow_ext_class__(self) -> type:
        return Objects


class Objects(pa.ExtensionArray):
    """What such a column gives as a list."""

    def to_pylist(self, **_: Any) -> list[Any]:
        """Return texts, and a gap as Ray has it."""
        return [float("nan") if text == b"" else text.decode() for text in self.storage.to_pylist()]


def in_blocks(*blocks: pa.Table) -> Any:
    """Return what `write_batches` asks of a data set of Ray."""
    options = SimpleNamespace(preserve_order=False)
    return SimpleNamespace(context=SimpleNamespace(execution_options=options), iter_batches=lambda **_: iter(blocks))


def test_blocks_of_ray_that_differ_in_what_they_hold_are_one_table(cache: Path) -> None:
    pickled = pa.ExtensionArray.from_storage(Pickled(), pa.array([b"x", b""], pa.binary()))
    blocks = in_blocks(pa.table({"a": [1, 2], "t": pa.nulls(2), "p": pa.nulls(2)}),
                       pa.table({"a": [1.5, None], "t": ["x", "y"], "p": pickled}),
                       pa.table({"a": [3, 4], "t": pa.array(["z", None], pa.large_string()), "p": ["y", "z"]}))
    in_memory.write_batches(blocks, cache / "blocks.parquet")
    table = pq.read_table(cache / "blocks.parquet")
    assert table.to_pydict() == {"a": [1, 2, 1.5, None, 3, 4], "t": [None, None, "x", "y", "z", None],
                                 "p": [None, None, "x", None, "y", "z"]}
    assert [path.name for path in cache.iterdir()] == ["blocks.parquet"]
    for wrong, said in ((in_blocks(), "has no rows"), (in_blocks(pa.table({"a": [1]}), pa.table({"a": ["x"]})),
                                                       "make the values of each column of one kind")):
        with pytest.raises(ValueError, match=said):
            in_memory.write_batches(wrong, cache / "wrong.parquet")


def test_blocks_of_ray_may_have_columns_in_another_order_or_lack_one_and_keep_codes(cache: Path) -> None:
    wards = pa.array([30, 10]).dictionary_encode()
    blocks = in_blocks(pa.table({"z": pa.array([], pa.int64())}), pa.table({"a": [1, 2], "ward": wards}),
                       pa.table({"ward": pa.array([20, None]).dictionary_encode(), "a": [3, 4]}),
                       pa.table({"ward": pa.nulls(1)}), pa.table({"ward": [10], "a": [5]}))
    in_memory.write_batches(blocks, cache / "blocks.parquet")
    assert pq.read_table(cache / "blocks.parquet").to_pydict() == {"a": [1, 2, 3, 4, None, 5],
                                                                   "ward": [30, 10, 20, None, None, 10]}
    assert chunks_of(cache / "blocks.parquet").listed == ("ward",)


def test_blocks_are_taken_as_they_are(cache: Path) -> None:
    """To put them together Ray has rules of its own, which end in errors of many lines."""
    asked: list[dict[str, Any]] = []
    blocks = in_blocks(pa.table({"a": [1]}))
    blocks.iter_batches = lambda **words: asked.append(words) or iter([pa.table({"a": [1]})])
    in_memory.write_batches(blocks, cache / "blocks.parquet")
    assert asked == [{"batch_size": None, "batch_format": "pyarrow"}]


@for_each(("table", "said"), [
    (in_blocks(pa.table([[1], [2]], ["a", " a"])), "the data set of Ray names column 'a' more than once"),
    (in_blocks(pa.table({"a": [[1]]})), "column 'a' of the table holds lists")])
def test_a_table_that_cannot_be_used_is_named_by_no_file_of_the_cache(table: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        in_memory.written(table)
    assert in_memory.FILE not in str(refused.value)


def test_rows_of_ray_come_in_their_order_where_labels_stand_beside_them() -> None:
    """Else they come as its tasks end."""
    options = SimpleNamespace(preserve_order=False)
    data = SimpleNamespace(context=SimpleNamespace(execution_options=options), to_pandas=lambda: pd.DataFrame(
        {"a": [1, 2] if options.preserve_order else [2, 1]}))
    assert data_frames.as_pandas(data)["a"].tolist() == [1, 2]
    assert not options.preserve_order


IDS = [2**60 + 1, 2**60 + 2, None]


@pytest.mark.parametrize("made", ["Arrow", "polars"])
def test_whole_numbers_of_arrow_stay_exact_beside_a_gap(made: str) -> None:
    table = {"Arrow": pa.table, "polars": lambda data: pytest.importorskip("polars").DataFrame(data)}[made]
    file = in_memory.written(table({"id": IDS * 20, "good": [0, 1] * 30}))
    assert pq.read_table(file)["id"].to_pylist() == IDS * 20
    assert data_frames.as_pandas(table({"id": IDS}))["id"].tolist()[:2] == IDS[:2]


def test_intervals_are_categories_and_periods_are_dates() -> None:
    ages = people().assign(age=lambda frame: pd.cut(frame["age"], [0, 40, 90]))
    encoding = Task(csv=ages, label="good", group="sex").data().train.encoding
    assert [feature.category for feature in encoding.features][:2] == ["(0, 40]", "(40, 90]"]
    days = people().assign(day=pd.period_range("2020-01-01", periods=ROWS, freq="D"))
    with pytest.raises(ValueError, match="column 'day' holds dates"):
        Task(csv=days, label="good", group="sex").data()


def test_what_parquet_cannot_hold_is_a_sentence() -> None:
    for frame, said in ((people().assign(age=1j), "the table cannot be written"),
                        (pd.concat([people(), people()[["age"]]], axis=1), "names column 'age' more than once")):
        with pytest.raises(ValueError, match=said):
            in_memory.written(frame)


def test_a_table_is_made_one_of_arrow_once() -> None:
    table = pa.table({"age": [20, 40]})
    assert data_frames.as_arrow(table) is table
    assert data_frames.as_arrow(pl.DataFrame({"age": [20, 40]})) == table
