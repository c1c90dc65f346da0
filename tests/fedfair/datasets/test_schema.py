"""Public ranges and lists: what a record's features are depends on that record alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.datasets import DATASETS
from fedfair.datasets.features.encoder import encode
from fedfair.datasets.schema import RECORDS, Listed, Schema, position, prepared, read
from fedfair.datasets.table import from_table
from fedfair.protocol.task import Task
from tests.for_each import for_each

TABLES = ("adult", "bank", "compas", "credit", "dutch", "law")
SCHEMA = Schema.of("a code book", {"age": (0, 100)},
                   {"job": "clerk, nurse, other", "town": "north, south", "g": "a, b"})
rows = st.fixed_dictionaries({
    "age": st.floats(-1e300, 1e300), "job": st.sampled_from(["clerk", "nurse", "spy", "other"]),
    "town": st.sampled_from(["north", "south", "elsewhere"]), "g": st.sampled_from("ab"), "y": st.integers(0, 1)})
FEW = [{"age": 20.0, "job": "clerk", "town": "north", "g": "a", "y": 0},
       {"age": 50.5, "job": "nurse", "town": "south", "g": "b", "y": 1}]


def features(records: list[dict[str, object]]) -> torch.Tensor:
    """Return the features of a table's records."""
    return prepared(from_table(pd.DataFrame(records), "y", "g", numbers=["age"]), SCHEMA).x


@given(st.lists(rows, max_size=8), rows)
def test_a_record_moves_no_other_record(others: list[dict[str, object]], one: dict[str, object]) -> None:
    """Hazard 27."""
    before = features([*FEW, *others])
    after = features([*FEW, *others, one])
    assert torch.equal(after[:-1], before)
    assert float(after.abs().max()) <= 1


def test_an_unlisted_category_is_other_or_none() -> None:
    x = features([*FEW, {"age": 1e9, "job": "spy", "town": "elsewhere", "g": "a", "y": 0}])
    assert x[-1].tolist() == [1.0, 0, 0, 1, 0, 0, 1, 0]  # age, clerk, nurse, other, north, south, a, b


def test_new_rows_are_encoded_alike() -> None:
    frame = pd.DataFrame([*FEW, {"age": -5.0, "job": "spy", "town": "elsewhere", "g": "b", "y": 1}])
    data = prepared(from_table(frame, "y", "g", numbers=["age"]), SCHEMA)
    assert torch.equal(encode(frame, data.encoding), data.x)


def test_codes_are_known_by_the_number_that_they_write() -> None:
    assert position("1", ["01", "02"]) == 0
    assert position("1.0", ["0", "1"]) == 1
    assert position("3", ["01", "02"]) == -1
    assert position("3", ["01", "other"]) == 1


def test_a_column_that_nothing_is_known_of_is_refused() -> None:
    data = from_table(pd.DataFrame(FEW), "y", "g", numbers=["age"])
    with pytest.raises(ValueError, match=r"publicly known of the categories of job, town, g: list them by categories"):
        prepared(data, Schema.of("here", {"age": (0, 1)}))
    with pytest.raises(ValueError, match="ranges says nothing of age"):
        prepared(data, SCHEMA._replace(ranges=()))


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_public_features_of_every_record(data_dir: Path, name: str) -> None:
    """No published record has a category that the public list lacks, so that none loses what it says."""
    raw, public = DATASETS[name].load(None), DATASETS[name].public
    assert public is not None
    assert public.source
    data = prepared(raw, public)
    one_hot = [at for at, category in enumerate(data.categories) if category is not None]
    assert bool((data.x[:, one_hot].sum(1) == len({data.columns[at] for at in one_hot})).all())
    assert 0 <= float(data.x.min()) <= float(data.x.max()) <= 1


@for_each("name", [*TABLES, "digits", "mnist", "shakespeare"])
def test_built_in_data_are_prepared_without_looking_at_records(data_dir: Path, name: str) -> None:
    assert Task(dataset=name).learned_from_records() is None


@for_each("name", TABLES)
def test_papers_scaling_is_learned_from_records(data_dir: Path, name: str) -> None:
    assert Task(dataset=name, preprocessing="records").learned_from_records()


def own(tmp_path: Path, **settings: object) -> Task:
    """Return the task of a file with an unusual value in every column."""
    path = tmp_path / "own.csv"
    lines = [f"{20 + i},{('clerk', 'nurse')[i % 2]},{('north', 'south')[i // 2 % 2]},{'ab'[i % 2]},{i // 3 % 2}"
             for i in range(60)]
    path.write_text("age,job,town,g,y\n" + "\n".join([*lines, "999,spy,elsewhere,a,1", "99,spy,moon,b,0"]) + "\n")
    return Task(csv=str(path), label="y", group="g", **{"attribute_in_model": True, **settings})  # type: ignore[arg-type]


def test_a_schema_file_is_its_content(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'source = "the code book"\n[ranges]\nage = [0, 100]\n[categories]\njob = ["clerk", "nurse", "other"]\n'
        'town = ["north", "south"]\n')
    task = own(tmp_path, schema_file=str(tmp_path / "s.toml"))
    assert task.schema_file is None
    assert task.known_from == "the code book"
    assert task.categories == (Listed("job", ("clerk", "nurse", "other")), Listed("town", ("north", "south")))
    assert task.prepares == "public"
    assert task.learned_from_records() is None
    assert task.data().train.x.shape[1] == 8
    assert "other" in task.data().train.categories
    (tmp_path / "s.toml").unlink()
    assert Task.model_validate_json(task.text) == task


def test_a_schema_that_was_read_off_the_records_is_not_public(tmp_path: Path) -> None:
    task = own(tmp_path, ranges={"age": [0, 100]}, categories={"job": ["clerk"], "town": ["north"]}, known_from=RECORDS)
    assert "were read off the records" in (task.learned_from_records() or "")


def test_a_column_without_range_or_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="publicly known of the categories of town"):
        own(tmp_path, ranges={"age": [0, 100]}, categories={"job": ["clerk", "other"]}).data()
    with pytest.raises(ValueError, match="'clerk' in row 1, where the settings say that it holds numbers"):
        own(tmp_path, ranges={"age": [0, 100], "job": [0, 1]}, categories={"town": ["north"]}).data()


def test_a_column_of_dates_is_no_column_of_numbers(tmp_path: Path) -> None:
    """Pandas has numbers of them, of a unit that differs from file to file; all would count as an end of the range."""
    for moment in (pd.Timestamp("2000-01-01"), pd.Timedelta(days=3)):
        pd.DataFrame({"age": [moment] * 40, "sex": ["f", "m"] * 20, "ill": ["no", "no", "yes", "yes"] * 10}).to_parquet(
            tmp_path / "own.parquet")
        with pytest.raises(ValueError, match=r"where the settings say that it holds numbers: .* quantities = \{ age ="):
            Task(csv=str(tmp_path / "own.parquet"), label="ill", group="sex", ranges={"age": [0, 100]},
                 categories={}).data()


@pytest.mark.parametrize(("text", "said"), [
    ("[ranges]\nage = [0, 1]\n", "source is missing"), ('source = "x"\nfoo = 1\n', "foo is not known here"),
    ('source = "x"\n[ranges]\nage = 3\n', "is no schema"), ("=", "is no schema"),
    ('source = "x"\n[categories]\ntown = "Ulm"\n', "the categories of town are 'Ulm': give a list"),
    ('source = "x"\n[categories]\ntown = ["Ulm", "Kiel", "Ulm"]\n', "town lists 'Ulm' more than once"),
    ('source = "x"\n[ranges]\nage = [0, nan]\n', "the range of age has no end"),
    ('source = "x"\n[ranges]\nage = [0, 9]\n[categories]\nage = ["1"]\n', "age has a range and a list"),
    ('source = "x"\nlabel = ["no", "yes"]\n', r"label is .*: name its column")])
def test_what_is_no_schema_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ValueError, match=said):
        read(tmp_path / "s.toml")
    with pytest.raises(FileNotFoundError, match="fedfair data schema"):
        read(tmp_path / "t.toml")
