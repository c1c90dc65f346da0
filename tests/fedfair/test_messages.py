"""Tensors travel by reference within a process, and whole when they leave it."""

from __future__ import annotations

import pickle

import pytest
import torch
from flwr.app import RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

from fedfair.clipping import Flat, Global, GlobalAdapt, PerGroup, Reweighted, Unclipped
from fedfair.counting import Above, AboveAndBelow, AtMost
from fedfair.messages import pack, unpacked
from fedfair.noise import Trust
from fedfair.rounds import LocalSgd, LocalTraining, Round

RULES = [Unclipped(), Flat(0.5), PerGroup((0.5, 1.5)), Global(0.5, 50.0), GlobalAdapt(0.5, 50.0),
         Reweighted(0.5, (1.0, 2.0))]
LOCAL = LocalTraining(32, "adam", 0.01, 0.0, (1.0, 2.0), (0.25, 0.75))


def test_in_one_process_the_tensor_itself_arrives() -> None:
    tensor = torch.randn(3, 2)
    assert unpacked(pack({"w": tensor}))["w"].data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_pickled_and_on_the_wire_the_values_arrive(dtype: torch.dtype) -> None:
    tensors = {"w": torch.arange(6).view(3, 2).to(dtype), "s": torch.tensor(2).to(dtype)}
    content = RecordDict({"sums": pack(tensors)})
    for copy in (pickle.loads(pickle.dumps(content)), recorddict_from_proto(recorddict_to_proto(content))):  # noqa: S301
        for name, value in unpacked(copy.array_records["sums"]).items():
            assert torch.equal(value, tensors[name])
            assert value.dtype == dtype


def test_a_packed_array_is_written_under_flowers_own_name() -> None:
    assert next(iter(pack({"w": torch.ones(2)}).values())).__class__.__qualname__ == "Array"


@pytest.mark.parametrize("rule", [None, *RULES])
@pytest.mark.parametrize("query", [None, Above(3.5), AboveAndBelow(0.5), AtMost(0.5)])
@pytest.mark.parametrize("local", [(None, None), (LOCAL, None), (None, LocalSgd(2, 16, 0.1, 0.0))])
def test_a_round_survives_json(rule: object, query: object, local: tuple[object, object]) -> None:
    made = Round(7, 3, (0.1, 0.2), 1.5, 15.0, Trust.LOCAL, 5, rule, query, *local)  # type: ignore[arg-type]
    assert Round.from_json(made.to_json()) == made


def test_packing_serialises_nothing() -> None:
    record = pack({"w": torch.ones(2)})
    RecordDict({"weights": record})
    assert "data" not in vars(record["w"])
