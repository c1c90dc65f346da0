"""Files of nodes under one schema: the same features whatever a file is like, or a refusal that tells no record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedfair.datasets.schema import SchemaMismatch
from fedfair.protocol.task import Task
from tests.for_each import for_each

SCHEMA = """source = "the study's code book"
label = "ill"
group = "sex"
[ranges]
age = [18, 80]
[categories]
job = ["nurse", "clerk", "cook"]
sex = ["f", "m"]
ill = ["no", "yes"]
"""


def table(records: int = 60, seed: int = 0) -> pd.DataFrame:
    draws = np.random.default_rng(seed)
    return pd.DataFrame({"age": draws.integers(18, 80, records), "job": draws.choice(["clerk", "cook"], records),
                         "sex": draws.choice(["f", "m"], records), "ill": draws.choice(["no", "yes"], records)})


def task(folder: Path, schema: str = SCHEMA, **settings: Any) -> Task:
    (folder / "study.toml").write_text(schema)
    return Task(**{"partition": "nodes", "schema_file": str(folder / "study.toml"), **settings})


def at_node(folder: Path, frame: pd.DataFrame, schema: str = SCHEMA, separator: str = ",", **settings: Any) -> Task:
    """Return a node's task: its file is CSV, or Parquet where a column is of dates, which only a type tells."""
    if any(pd.api.types.is_datetime64_any_dtype(column) for _, column in frame.items()):
        frame.to_parquet(folder / "own.parquet")
        return task(folder, schema, **settings).at_node(str(folder / "own.parquet"), 3)
    frame.to_csv(folder / "own.csv", index=False, sep=separator)
    return task(folder, schema, **settings).at_node(str(folder / "own.csv"), 3)


def test_the_server_knows_all_but_the_records(tmp_path: Path) -> None:
    server = task(tmp_path)
    assert (server.label, server.group, server.csv, server.dataset) == ("ill", "sex", None, "nodes")
    known, held = server.data().train, at_node(tmp_path, table()).data().train
    assert len(known) == 0
    assert 30 < len(held) < 54  # each row is dealt by itself
    for name in ("names", "labels", "classes", "columns", "categories"):
        assert getattr(known, name) == getattr(held, name), name
    assert known.encoding.listed == held.encoding.listed == ("job", "sex")
    assert known.x.shape[1:] == held.x.shape[1:] == (4,)
    assert server.learned_from_records() is None
    assert Task.model_validate_json(server.text) == server


def test_the_layout_of_a_file_and_its_other_columns_change_nothing(tmp_path: Path) -> None:
    plain = at_node(tmp_path, table()).data().train
    other = table()[["ill", "sex", "job", "age"]].assign(note="Smith, J.", ward=[f"w{n}" for n in range(60)])
    again = at_node(tmp_path, other, separator=";").data().train
    for name in ("x", "y", "group"):
        assert torch.equal(getattr(plain, name), getattr(again, name)), name
    assert plain.encoding.features == again.encoding.features


def test_values_are_those_of_the_schema_whichever_occur(tmp_path: Path) -> None:
    """A site of women alone, without nurses, has the features and groups of all."""
    held = at_node(tmp_path, table().assign(sex="f", job="cook")).data().train
    assert held.names == ("f", "m")
    assert held.group_sizes() == (len(held), 0)
    assert held.categories == (None, "clerk", "cook", "nurse")
    assert held.x[:, 1:].sum(0).tolist() == [0, len(held), 0]


def test_groups_may_be_intersections_or_bands(tmp_path: Path) -> None:
    both = at_node(tmp_path, table(), group="sex,ill").data().train
    assert both.names == ("f & no", "f & yes", "m & no", "m & yes")
    assert torch.equal(both.group % 2, both.y)
    bands = task(tmp_path, group="age", bands=[30, 60])
    assert bands.data().train.names == ("under 30", "30 to under 60", "60 and over")
    held = at_node(tmp_path, table(), group="age", bands=[30, 60])
    frame = table()
    sizes = [sum(len(part) and int((part.group == k).sum()) for _, part in held.data()) for k in range(3)]
    assert sizes == [(frame.age < 30).sum(), ((frame.age >= 30) & (frame.age < 60)).sum(), (frame.age >= 60).sum()]


UNLISTED = "Zaphod"
STRANGE = {
    "label": (lambda frame: frame.assign(ill=[UNLISTED, *frame.ill[1:]]),
              "ill has values that the schema does not list"),
    "group": (lambda frame: frame.assign(sex=[UNLISTED, *frame.sex[1:]]),
              "sex has values that the schema does not list"),
    "category": (lambda frame: frame.assign(job=[UNLISTED, *frame.job[1:]]),
                 "job has values that the schema does not list"),
    "number": (lambda frame: frame.assign(age=[UNLISTED, *frame.age[1:]]), "age has values that are no numbers"),
    "date": (lambda frame: frame.assign(age=pd.to_datetime("2000-01-01")), "age has values that are no numbers"),
    "infinite": (lambda frame: frame.assign(age=[float("inf"), *frame.age[1:]]), "age has values that are no numbers"),
    "column": (lambda frame: frame.rename(columns={"age": UNLISTED}), "it has no column age"),
    "gap": (lambda frame: frame.assign(age=[None, *frame.age[1:]]), "values are missing in age"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_file_unlike_the_schema_is_refused_by_the_schemas_names_alone(
        kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two files that differ in other ways from the schema get the same words."""
    change, said = STRANGE[kind]
    words = []
    for seed in (0, 1):
        with caplog.at_level(logging.WARNING), pytest.raises(SchemaMismatch) as refusal:
            at_node(tmp_path, change(table(40 + 20 * seed, seed))).data()
        words.append(str(refusal.value))
    assert said in words[0]
    assert words[0] == words[1]
    assert UNLISTED not in words[0]
    if kind not in ("column", "gap"):
        assert UNLISTED in caplog.text or "inf" in caplog.text or "2000-01-01" in caplog.text


def test_what_counts_as_another_value_or_is_left_out_is_said_to_the_nodes_owner(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the node's own log: no server hears of it."""
    frame = table().assign(age=lambda rows: [7, *rows.age[1:]], job=lambda rows: [UNLISTED, *rows.job[1:]])
    held = at_node(tmp_path, frame, SCHEMA.replace('"cook"]', '"cook", "other"]'))
    (tmp_path / "own.csv").write_text((tmp_path / "own.csv").read_text() + "20,cook,f,no,more\n")
    with caplog.at_level(logging.WARNING):
        assert sum(len(part) for _, part in held.data()) == 60
    for said in (f"column job has values that the schema does not list, which count as \"other\", in 1 of 60 rows: "
                 f"'{UNLISTED}'", "column age has values that are outside its range, which count as its ends, in 1 of "
                 "60 rows: '7.0'", "left out: 1 rows of"):
        assert said in caplog.text


@for_each(("change", "said"), [
    (lambda frame: frame.rename(columns={"age": "Age"}), "has no column age; it has Age, job, sex, ill"),
    (lambda frame: frame.assign(age=[None, *frame.age[1:]]), "age has values that count as missing in 1 of 60 rows")])
def test_the_nodes_own_log_says_more_of_every_refusal(
        change: Callable[[pd.DataFrame], pd.DataFrame], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
        ) -> None:
    """As its sentence promises."""
    with caplog.at_level(logging.WARNING), pytest.raises(SchemaMismatch, match="its own log says more"):
        at_node(tmp_path, change(table())).data()
    assert said in caplog.text


@pytest.mark.parametrize("role", ["site", "participant"])
def test_a_record_decides_neither_the_site_nor_the_participant_of_another(role: str, tmp_path: Path) -> None:
    """A name among numbers made two sites of 1 and 1.0, which were one."""
    wards = ["1", "1.0", "2"] * 20
    found = []
    for last in ("2", "ward nine"):
        frame = table().assign(ward=[*wards[:-1], last])
        more = {"participant": "ward"} if role == "participant" else {}
        frame.to_csv(tmp_path / "own.csv", index=False)
        held = task(tmp_path, **more).at_node(str(tmp_path / "own.csv"), 3, "ward" if role == "site" else "").data()
        rows = torch.cat([part.records for _, part in held])
        found.append(torch.cat([getattr(part, role) for _, part in held])[rows.argsort()].tolist()[:-1])
    assert len({*zip(*found, strict=True)}) == len({*found[0]}) == len({*found[1]})


def test_other_stands_for_unlisted_categories_but_not_for_another_vocabulary(tmp_path: Path) -> None:
    schema = SCHEMA.replace('"cook"]', '"cook", "other"]')
    frame = table()
    held = at_node(tmp_path, frame.assign(job=["poet", *frame.job[1:]]), schema)
    assert sum(float(part.x[:, held.data().train.categories.index("other")].sum()) for _, part in held.data()) == 1
    at_node(tmp_path, frame.assign(job="other"), schema).data()
    with pytest.raises(SchemaMismatch, match="job has values that the schema does not list"):
        at_node(tmp_path, frame.assign(job=["K" + job for job in frame.job]), schema).data()


def test_a_schema_must_say_enough(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the schema lists \[\] for ill, whose values make classes or groups"):
        task(tmp_path, SCHEMA.replace('ill = ["no", "yes"]\n', ""))
    with pytest.raises(ValueError, match="needs the columns that hold label and group"):
        Task(partition="nodes", categories={"a": ["b", "c"]})
    with pytest.raises(ValueError, match="give a schema_file"):
        Task(partition="nodes", label="ill", group="sex")
    for name, value in (("csv", "x.csv"), ("clients", 3), ("imbalance", "f:3")):
        with pytest.raises(ValueError, match=f"{name} is .* every node opens a file of its own"):
            task(tmp_path, **{name: value})
    with pytest.raises(ValueError, match='missing is "keep"'):
        task(tmp_path, missing="keep")
    with pytest.raises(ValueError, match="this node has no file of its own"):
        task(tmp_path).at_node("", 3)
