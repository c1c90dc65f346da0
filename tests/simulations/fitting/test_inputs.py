"""A fit reads files of every format, and tables and arrays in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from rich.console import Console
from torch.utils.data import TensorDataset

from fedfair.datasets.files import data_frames, in_memory
from simulations.fitting.card import story_table
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.fit_folder import Story
from simulations.fitting.save import save
from simulations.results.classifier import TrainedClassifier

ROWS = 1200


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tables of a test in its own folder."""
    monkeypatch.setattr(in_memory.pooch, "os_cache", lambda project: tmp_path / project)
    return tmp_path


def people() -> pd.DataFrame:
    draws = np.random.default_rng(3)
    income, town = draws.normal(0, 1, ROWS).round(3), draws.choice(["x", "y"], ROWS)
    return pd.DataFrame({"income": income, "town": town, "sex": draws.choice(["f", "m"], ROWS),
                         "good": np.where(income + (town == "y") > .5, "yes", "no")})


def put(folder: Path, name: str) -> Path:
    """Write the table to a file in the format that its name says."""
    write: dict[str, Callable[[Path], object]] = {
        ".csv": lambda path: people().to_csv(path, index=False), ".parquet": people().to_parquet,
        ".feather": people().to_feather, ".xlsx": lambda path: people().to_excel(path, index=False),
        ".jsonl": lambda path: people().to_json(path, orient="records", lines=True)}
    write[Path(name).suffix](folder / name)
    return folder / name


def in_parts(folder: Path) -> Path:
    """Write the table to several files of a folder."""
    (parts := folder / "parts").mkdir()
    for number, first in enumerate(range(0, ROWS, 500)):
        people()[first:first + 500].to_csv(parts / f"{number}.csv", index=False)
    return parts


SOURCES: dict[str, Callable[[Path], Any]] = {
    **{name: lambda folder, name=name: put(folder, name)  # type: ignore[misc]
       for name in ("own.csv", "own.parquet", "own.feather", "own.xlsx", "own.jsonl")},
    "pattern": lambda folder: in_parts(folder) / "*.csv", "folder": lambda folder: in_parts(folder),
    "pandas": lambda folder: people(), "polars": lambda folder: pytest.importorskip("polars").from_pandas(people()),
    "Arrow": lambda folder: pa.Table.from_pandas(people())}


@pytest.mark.parametrize("source", SOURCES)
def test_a_table_is_fitted_whatever_holds_it(source: str, tmp_path: Path) -> None:
    made = fit(Wanted(SOURCES[source](tmp_path), "good", "sex", 50.0))
    assert made.kinds == ("income",)
    assert (made.result.data.train.names, made.result.data.train.labels) == (("f", "m"), ("no", "yes"))
    assert made.result.ledger.guarantee == "proved"
    predicted = TrainedClassifier.of(made.result).predict(people())
    assert (predicted == (people()["good"] == "yes")).mean() > .85


def test_arrays_and_torch_data_sets_are_fitted() -> None:
    frame = people()
    x = torch.tensor(frame[["income"]].assign(town=frame["town"] == "y").to_numpy(dtype="float64"))
    y, group = torch.tensor(frame["good"] == "yes").long(), torch.tensor(frame["sex"] == "f").long()
    arrays = data_frames.frame_of(x.numpy(), y.numpy(), group.numpy())
    for table in (arrays, data_frames.frame_of_dataset(TensorDataset(x, y, group))):
        made = fit(Wanted(table, "label", "group", 50.0))
        predicted = TrainedClassifier.of(made.result).predict(arrays)
        assert (predicted == y.numpy()).mean() > .85


def test_a_column_may_be_named_self(tmp_path: Path) -> None:
    """Methods of pandas that take columns as arguments take none of that name."""
    frame = pd.DataFrame({"self": ["a", "b"] * 200, "frame": range(400), "sex": ["f", "f", "m", "m"] * 100,
                          "granted": ["yes", "no"] * 200})
    frame.to_csv(tmp_path / "own.csv", index=False)
    for data in (frame, tmp_path / "own.csv"):
        fitted = fit(Wanted(data, "granted", "sex", 6.0, settings={"randomness": "seeded"}))
        assert "self" in {feature.column for feature in fitted.result.data.train.encoding.features}


def test_numbers_of_rows_are_no_feature_unless_they_have_a_name(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                ) -> None:
    """Rows sorted by the label: their numbers tell it, and pandas writes them in a first column without a name."""
    people().sort_values("good").reset_index(drop=True).to_csv(tmp_path / "own.csv")
    settings: dict[str, Any] = {"randomness": "seeded"}
    made = fit(Wanted(tmp_path / "own.csv", "good", "sex", 20.0, settings=settings))
    assert {feature.column for feature in made.result.data.train.encoding.features} == {"income", "town"}
    assert "left out: the first column, which has no name" in caplog.text
    named = fit(Wanted(tmp_path / "own.csv", "good", "sex", 20.0, settings={**settings, "numbers": ["Unnamed: 0"]}))
    assert "Unnamed: 0" in {feature.column for feature in named.result.data.train.encoding.features}


def test_a_column_that_decides_nearly_alone_is_told_and_so_is_an_identifier(tmp_path: Path) -> None:
    numbered = people().assign(person_id=np.arange(ROWS) // 2)
    said = {}
    for name, frame in (("leaks", numbered.assign(bad=(numbered["good"] == "no").astype(int))), ("not", numbered)):
        save(fit(Wanted(frame, "good", "sex", 50.0, settings={"randomness": "seeded"})), tmp_path / name)
        with (console := Console(width=400)).capture() as printed:
            console.print(story_table(Story.read(tmp_path / name)))
        said[name] = printed.get()
    assert "look whether bad is known before good is" in said["leaks"]
    assert "look whether bad is known before good is" in (tmp_path / "leaks" / "card.md").read_text()
    assert "known before" not in said["not"]
    assert "person_id, which has the name of an identifier, is a feature" in said["not"]
