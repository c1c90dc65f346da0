"""Tensors in Flower messages: by reference in a process, without a copy through Ray's object store, serialised on the
wire.

Which program a machine runs: the version of fedfair, and a digest of its source.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from fedfair.gradients.layer_gradients import Gradients
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task

ACTION = "exchange"
"""Flower's action of every message; the message's record of this name says which exchange it asks for."""

CLIENTS = "clients"
"""Record of a request that tells a node from which number on its clients are numbered, of how many in all."""

BEFORE_THRESHOLD = "before threshold"
"""Follows the name of a part in metrics of the model's own decisions, before a threshold corrects them."""

BY_CLIENT = "by client"
"""Follows the name of a part in metrics of each client's records."""


class TensorArray(Array):
    """A Flower array around a live tensor, turned into bytes only on demand.

    Unpacked in the same process, it gives the tensor itself. Pickled (protocol 5), it travels as a buffer, which Ray
    maps read-only into the processes of a machine. The tensor must therefore not be changed in place. On the wire it
    becomes a plain `Array`.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.__dict__["tensor"] = tensor.detach()

    def __getattr__(self, name: str) -> Any:
        # Python calls this only until the serialised fields (dtype, shape, stype, data) are made.
        if name in ("dtype", "shape", "stype", "data"):
            self.__dict__.update(vars(Array(self.__dict__["tensor"].numpy())))
            return self.__dict__[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        return _mapped, (self.__dict__["tensor"].numpy(),)


# Flower writes the class's name on the wire and looks it up among its own when it reads it back.
TensorArray.__qualname__ = Array.__qualname__


def _mapped(values: NDArray[Any]) -> TensorArray:
    """Return the array around the memory of `values`, writable or not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return TensorArray(torch.from_numpy(values))


def pack(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Return a record of the tensors themselves, or of copies of those on a GPU or not contiguous.

    Messages are thus the same whatever a client's device and memory format.
    """
    record = ArrayRecord()
    for name, tensor in tensors.items():
        record[name] = TensorArray(tensor.cpu().contiguous())
    return record


def unpack(content: RecordDict, name: str) -> Gradients:
    """Return the tensors of a message's record `name`: the packed ones in one process or through Ray, else copies."""
    return unpacked(cast(ArrayRecord, content[name]))


def unpacked(record: ArrayRecord) -> Gradients:
    """Return the tensors of a record, as `unpack` does."""
    return {name: array.__dict__["tensor"] if "tensor" in array.__dict__ else torch.from_numpy(array.numpy().copy())
            for name, array in record.items()}


def requests(name: str, category: str, nodes: Iterable[int], task: Task, *, weights: ArrayRecord | None = None,
             round_: Round | None = None, tensors: Mapping[str, Mapping[str, Tensor]] | None = None, **options: Any
             ) -> list[Message]:
    """Return messages that ask nodes for the exchange `name`, by Flower's `category` of messages.

    `tensors` are further records, `options` numbers, texts or lists of them. The record "exchange" also names this
    request among all others; a node sends it back.
    """
    records: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
        "exchange": ConfigRecord({"name": name, "request": token_hex(8)}), "task": _record("json", task.text)}
    if weights is not None:
        records["weights"] = weights
    if round_ is not None:
        records["round"] = ConfigRecord({"json": round_.to_json()})
    records |= {name: pack(record) for name, record in (tensors or {}).items()}
    if options:
        records["options"] = ConfigRecord(options)
    return [Message(RecordDict(records), dst_node_id=node, message_type=f"{category}.{ACTION}") for node in nodes]


@lru_cache(maxsize=32)
def _record(key: str, text: str) -> ConfigRecord:
    """Return a record with one text, made once for all messages of a run."""
    return ConfigRecord({key: text})


_PACKAGE = Path(__file__).resolve().parents[1]


@lru_cache(maxsize=1)
def program() -> str:
    """Return the version of fedfair with a digest of all of its Python files, "0.1.0 (source 1a2b3c4d5e6f)".

    Server and nodes compare it, against mistakes: a node that lies can say what it likes.
    """
    digest = sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{version('fedfair')} (source {digest.hexdigest()[:12]})"
