"""Tensors travel by reference within a process, by mapped memory through Ray, and whole as Flower 1.41 sends them
(deflated to bytes).
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedfair.mechanisms.clipping import PerGroup
from fedfair.mechanisms.counting import Above
from fedfair.mechanisms.noise import Trust
from fedfair.protocol import messages
from fedfair.protocol.messages import pack, unpack, unpacked
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task

TENSORS = {"w": torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
           "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4), "turned": torch.arange(6.0).view(2, 3).t(),
           "counts": torch.tensor([3, -1])}


@pytest.fixture
def identity() -> None:
    """Give the process the identity that Flower's messages ask for; a runtime or a grid would have done so."""
    try:
        _ = TaskIdentity.run_id
    except RuntimeError:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 0, 1, 0


def sent(content: RecordDict) -> RecordDict:
    """Return what the receiver gets."""
    contents = {name: part.deflate() for name, part in get_all_nested_objects(content).items()}
    received = inflate_object_from_contents(content.object_id, contents)
    assert isinstance(received, RecordDict)
    return received


def test_values_types_and_shapes_survive_the_wire() -> None:
    received = unpack(sent(RecordDict({"sums": pack(TENSORS)})), "sums")
    assert list(received) == list(TENSORS)
    for name, value in received.items():
        assert torch.equal(value, TENSORS[name])
        assert value.dtype == TENSORS[name].dtype
        value += 1  # its own memory, and writable
    assert torch.equal(TENSORS["turned"], torch.arange(6.0).view(2, 3).t())


def test_what_arrives_is_a_plain_array() -> None:
    record = sent(RecordDict({"sums": pack(TENSORS)})).array_records["sums"]
    assert {type(array) for array in record.values()} == {Array}


def test_pickled_a_tensor_is_a_buffer_that_the_receiver_maps() -> None:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(pack({"w": torch.randn(1000)}), protocol=5, buffer_callback=buffers.append)
    assert len(pickled) < 1000
    memory = bytes(buffers[0])
    found = unpacked(pickle.loads(pickled, buffers=[memory]))["w"]  # noqa: S301
    assert found.data_ptr() == np.frombuffer(memory, np.float32).ctypes.data
    received = pickle.loads(pickle.dumps(pack(TENSORS)))  # noqa: S301
    assert torch.equal(unpack(sent(RecordDict({"a": received})), "a")["turned"], TENSORS["turned"])


def test_a_packed_record_can_be_sent_on_after_it_was_sent() -> None:
    record = pack(TENSORS)
    assert torch.equal(unpack(sent(RecordDict({"a": record})), "a")["w"], TENSORS["w"])
    assert torch.equal(unpack(sent(RecordDict({"a": record})), "a")["w"], TENSORS["w"])
    assert unpacked(record)["w"] is unpacked(record)["w"]


def test_an_array_record_of_flowers_own_can_be_unpacked() -> None:
    record = ArrayRecord({name: value for name, value in TENSORS.items()})  # noqa: C416
    assert all(torch.equal(value, TENSORS[name]) for name, value in unpacked(record).items())


def test_a_parameter_travels_without_its_graph() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    value = unpacked(pack({"w": parameter}))["w"]
    assert not value.requires_grad
    assert value.data_ptr() == parameter.data_ptr()


def test_values_lie_in_order_however_they_lay() -> None:
    kernels = torch.randn(3, 2, 4, 4).to(memory_format=torch.channels_last)
    for value, expected in ((unpacked(pack({"w": kernels}))["w"], kernels),
                            (unpacked(pack(TENSORS))["turned"], TENSORS["turned"])):
        assert value.is_contiguous()
        assert torch.equal(value, expected)


def test_a_copy_of_a_record_has_the_same_values() -> None:
    assert torch.equal(unpacked(copy.deepcopy(pack(TENSORS)))["w"], TENSORS["w"])


def test_a_request_carries_task_round_weights_and_options(identity: None) -> None:
    task = Task(seed=3, hidden=(4, 5))
    round_ = Round(key="3", step=7, rates=(0.1, 0.2), noise_multiplier=1.0, count_noise_multiplier=10.0,
                   trust=Trust.DISTRIBUTED, clients=4, rule=PerGroup((0.5, 1.5)), query=Above(2.0))
    (message,) = messages.requests("exchanges.send_evaluation", "evaluate", [5], task, weights=pack(TENSORS),
                                   round_=round_, splits=["test"], **{"gradient-norms": True})
    received = sent(message.content)
    assert Task.model_validate_json(str(received["task"]["json"])) == task
    assert Round.from_json(str(received["round"]["json"])) == round_
    assert received["options"]["splits"] == ["test"]
    assert received["options"]["gradient-norms"] is True
    assert torch.equal(unpack(received, "weights")["w"], TENSORS["w"])
    assert (message.metadata.dst_node_id, message.metadata.message_type) == (5, "evaluate.exchange")
    assert received["exchange"]["name"] == "exchanges.send_evaluation"


def test_in_one_process_the_tensor_itself_arrives() -> None:
    tensor = torch.randn(3, 2)
    assert unpacked(pack({"w": tensor}))["w"].data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_pickled_and_on_the_wire_the_values_arrive(dtype: torch.dtype) -> None:
    tensors = {"w": torch.arange(6).view(3, 2).to(dtype), "s": torch.tensor(2).to(dtype)}
    content = RecordDict({"sums": pack(tensors)})
    for sent_on in (pickle.loads(pickle.dumps(content)), recorddict_from_proto(recorddict_to_proto(content))):  # noqa: S301
        for name, value in unpacked(sent_on.array_records["sums"]).items():
            assert torch.equal(value, tensors[name])
            assert value.dtype == dtype


def test_a_packed_array_is_written_under_flowers_own_name() -> None:
    assert next(iter(pack({"w": torch.ones(2)}).values())).__class__.__qualname__ == "Array"


def test_packing_serialises_nothing() -> None:
    record = pack({"w": torch.ones(2)})
    RecordDict({"weights": record})
    assert "data" not in vars(record["w"])
