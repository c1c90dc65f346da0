"""Second device for machines that have none: its tensors hold numbers, but do not mix with a processor's.

This checks without a GPU what code does with one: operations run on the processor, and refuse what PyTorch refuses of
tensors on two devices. The device is called "lazy", a name that PyTorch knows but no build computes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

FAR = "lazy"
_NEAR = torch.device("cpu")
_MOVES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default, torch.ops.aten._copy_from.default)
_INDEXED_FROM_NEAR = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default)


@contextmanager
def far_device() -> Iterator[str]:
    """Provide the device's name, while the device exists."""
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with _Factories():
            yield FAR
    finally:
        torch._C._set_only_lift_cpu_tensors(False)


class Far(Tensor):
    """Tensor on the device; `near` is the same on the processor."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> Far:
        """Wrap a tensor of the processor."""
        made: Far = Tensor._make_wrapper_subclass(cls, near.shape, strides=near.stride(), dtype=near.dtype,
                                                 device=FAR)
        made.near = near
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Sequence[Any] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run an operation that has an operand on the device."""
        return _run(operation, args, kwargs or {})

    @property
    def data(self) -> Tensor:
        """See `Tensor.data`."""
        return self.detach()

    @data.setter
    def data(self, value: Far) -> None:
        self.near = value.near

    def tolist(self) -> Any:
        """See `Tensor.tolist`, which refuses subclasses."""
        return self.near.tolist()


class _Factories(TorchDispatchMode):
    """Mode that also sees operations without an operand on the device, such as `torch.zeros(3, device="lazy")`."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Sequence[Any] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        return _run(operation, args, kwargs or {})


def _run(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operation on the processor; its results belong to the device of its operands.

    Raises `RuntimeError` if operands are on both, single numbers aside.
    """
    operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = [operand for operand in operands if isinstance(operand, Far)]
    asked = kwargs.get("device")
    if there and operation not in _MOVES and not _indexed_from_near(operation, args):
        for operand in operands:
            if operand.dim() and not isinstance(operand, Far):
                raise RuntimeError(f"{operation} was given tensors on {FAR} and on the processor")
    results = operation(*tree_map(_near, args), **tree_map(_near, dict(kwargs)))
    same = {id(operand.near): operand for operand in there}
    far = bool(there) if asked is None else torch.device(asked).type == FAR

    def placed(value: Any) -> Any:
        """Place a result on its device; return the operand itself where the operation changed it in place."""
        if id(value) in same:
            return same[id(value)]
        return Far(value) if far and isinstance(value, Tensor) else value

    return tree_map(placed, results)


def _indexed_from_near(operation: Any, args: Sequence[Any]) -> bool:
    """Return whether a tensor on the device is indexed by row numbers, which may lie anywhere, as PyTorch allows."""
    return operation in _INDEXED_FROM_NEAR and isinstance(args[0], Far) and all(
        isinstance(value, Far) for value in args[2:3])


def _near(value: Any) -> Any:
    """Return the same on the processor."""
    if isinstance(value, Far):
        return value.near
    return _NEAR if isinstance(value, torch.device) else value
