"""Features that are made when they are needed: what stands where the tensor of all of them would.

`LazyRows` has the shape and type of that tensor, and some of its records are `LazyRows` again. Every other operation
makes the features first, those of the records at hand. So a computation that goes through the records in portions never
has all features in memory, and one that does not is as right as before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

_OF_SHAPE = {Tensor.__len__, Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point,
             *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "nbytes"))}


class LazyRows(Tensor):
    """Features of some records, `[n, ...]`, which share what they are made of with other rows of the same whole.

    Attributes:
        places: Places of these records in the whole, `[n]`; None for all, in their order.
    """

    places: Tensor | None

    @abstractmethod
    def at(self, places: Tensor) -> Self:
        """Return the records at some places of the whole.

        Args:
            places: Their places, `[n]`.
        """

    @abstractmethod
    def made(self) -> Tensor:
        """Return the features as a plain tensor, `[n, ...]`."""

    def rows(self, chosen: Tensor | slice) -> Self:
        """Return some of the records.

        Args:
            chosen: Which of them: their rows here, `[m]`, or truth values, `[n]`.
        """
        if self.places is not None:
            return self.at(self.places[chosen])
        if isinstance(chosen, slice):
            return self.at(torch.arange(*chosen.indices(len(self))))
        return self.at(torch.arange(len(self))[chosen])

    def without_making(self, func: Callable[..., Any], *index: Any) -> Tensor | None:
        """Return what a function gives that needs no features; None if it needs them.

        Args:
            func: Function of PyTorch.
            index: Its other arguments.
        """
        if func is Tensor.index_select and index[0] == 0:
            return self.rows(index[1])
        if func is Tensor.to and len(index) == 1 and isinstance(index[0], str | torch.device) and str(
                index[0]) == "cpu":
            return self
        if func is Tensor.__getitem__ and isinstance(index[0], Tensor | slice):
            return self.rows(index[0])
        return None

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        """Index by record, and let every other function have the features."""
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_SHAPE:
                return func(*args, **(kwargs or {}))
            if isinstance(args[0], LazyRows) and not kwargs:
                known = args[0].without_making(func, *args[1:])
                if known is not None:
                    return known
            return func(*map(_plain, args), **{name: _plain(value) for name, value in (kwargs or {}).items()})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Refuse what goes around `__torch_function__`: there is no memory with features."""
        raise TypeError(f"{func} cannot be applied to rows that are made when they are needed, which have no memory: "
                        "make the features first")


def _plain(value: Any) -> Any:
    """Return an argument of a function with features in place of what they are made of."""
    if isinstance(value, LazyRows):
        return value.made()
    if isinstance(value, list | tuple) and any(isinstance(each, LazyRows) for each in value):
        return [*map(_plain, value)]
    return value
