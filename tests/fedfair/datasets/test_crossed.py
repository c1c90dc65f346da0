"""Intersections of protected attributes as groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfair.datasets.grouped import GroupedDataset, crossed
from fedfair.protocol.task import Task


def test_groups_are_the_intersections_that_occur() -> None:
    first, second = [0, 0, 1, 1, 1], [2, 0, 0, 0, 2]
    data = GroupedDataset(torch.zeros(5, 1), torch.zeros(5, dtype=torch.long), torch.tensor(first), ("a", "b"), 2)
    other = replace(data, group=torch.tensor(second), names=("x", "y", "z"))
    found = crossed(data, other)
    assert found.names == ("a & x", "a & z", "b & x", "b & z")
    assert [found.names[k] for k in found.group] == [
        f"{'ab'[i]} & {'xyz'[j]}" for i, j in zip(first, second, strict=True)]
    with pytest.raises(ValueError, match="groups of 5 and of 4 records cannot be crossed"):
        crossed(data, other.take(torch.arange(4)))


def test_a_task_crosses_the_columns_that_its_group_names(tmp_path: Path) -> None:
    rows = [f"{i},{'mf'[i % 2]},{'xyz'[i // 2 % 3]},{i % 5 // 3}" for i in range(120)]
    (tmp_path / "own.csv").write_text("\n".join(["size,sex,kind,label", *rows]))
    one, both = (Task(csv=str(tmp_path / "own.csv"), label="label", group=group, attribute_in_model=True).data().test
                 for group in ("sex", "sex, kind"))
    assert both.names == tuple(f"{a} & {b}" for a in "fm" for b in "xyz")
    assert sorted(both.records.tolist()) == sorted(one.records.tolist())
    assert torch.equal(both.x[both.records.argsort()], one.x[one.records.argsort()])
    for name, record in zip((both.names[k] for k in both.group), both.records.tolist(), strict=True):
        assert name == f"{'mf'[record % 2]} & {'xyz'[record // 2 % 3]}"
