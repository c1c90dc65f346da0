"""What a model keeps between batches, found wherever its code can reach, and put back.

A buffer, an attribute, a list in a closure or a global variable that changes with a batch carries one record to
another, past every clip and without noise. `forgetting` undoes such changes; `ModelState.differences` names them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedfair.gradients.known_layers import is_known

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy", "opacus", "fedfair"}
_PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_Contents = dict[Any, Any]


class _Place(NamedTuple):
    """Something that can change: its name, itself, what it holds, and its numbers if it is a tensor or an array."""

    name: str
    value: Any
    contents: _Contents
    numbers: Any


class ModelState:
    """A copy of everything that a model's code can reach and change; known layers change nothing."""

    def __init__(self, model: nn.Module) -> None:
        self._places: dict[int, _Place] = {}
        waiting: list[tuple[str, Any]] = [] if is_known(model) else [("", model)]
        while waiting:
            name, value = waiting.pop()
            if id(value) in self._places or isinstance(value, _PLAIN):
                continue
            contents = _contents(value)
            if contents is None:
                continue
            self._places[id(value)] = _Place(name, value, contents, _numbers(value))
            waiting += [(_joined(name, key), part) for key, part in contents.items()]

    def differences(self, other: ModelState) -> list[str]:
        """Return the names of what is not the same in another copy, however it got there."""
        mine, others = ({place.name: place for place in state._places.values()} for state in (self, other))
        missing = mine.keys() ^ others.keys()
        return sorted(missing.union(*(_differing(mine[name], others[name]) for name in mine.keys() & others.keys())))

    def restore(self) -> None:
        """Put everything back that is no longer as it was."""
        for place in self._places.values():
            now = _contents(place.value) or {}
            if now.keys() != place.contents.keys() or not all(_same(now[key], value)
                                                              for key, value in place.contents.items()):
                _put_back(place.value, place.contents)
            if not _equal(place.numbers, place.value):
                _put_numbers_back(place.value, place.numbers)


@contextmanager
def forgetting(model: nn.Module) -> Iterator[None]:
    """Undo, at the end of the context, what a batch has changed in a model."""
    state = ModelState(model)
    try:
        yield
    finally:
        state.restore()


_MISSING = object()


def _joined(name: str, key: Any) -> str:
    """Return the name of a part; a module's own dictionaries go without a name."""
    if key in ("_buffers", "_parameters", "_modules"):
        return name
    return f"{name}.{key}" if name else str(key)


def _contents(value: Any) -> _Contents | None:
    """Return what a value holds by name, or None for one that cannot change or belongs to a library."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | tuple | deque):
        return dict(enumerate(value))
    if isinstance(value, set):
        return dict.fromkeys(value)
    if isinstance(value, MethodType):
        return {"self": value.__self__, "function": value.__func__}
    if isinstance(value, staticmethod | classmethod):
        return {"function": value.__func__}
    if isinstance(value, property):
        return {"function": value.fget}
    if isinstance(value, FunctionType):
        return _reached(value) if _is_foreign(value.__module__) else None
    if isinstance(value, type):
        return {**vars(value), "bases": value.__bases__} if _is_foreign(value.__module__) else None
    if isinstance(value, Tensor | np.ndarray):
        return dict(getattr(value, "__dict__", {}))
    if isinstance(value, nn.Module):
        return {**vars(value), "class": type(value)}
    if _is_foreign(type(value).__module__) and hasattr(value, "__dict__"):
        return {**vars(value), "class": type(value)}
    return None


def _reached(function: FunctionType) -> _Contents:
    """Return what a function can reach: its closure, its defaults and the global variables that it names."""
    reached = {f"closure variable {name}": cell.cell_contents for name, cell in _cells(function).items()}
    reached |= {f"global variable {name}": function.__globals__[name] for name in _names(function.__code__)
                if name in function.__globals__}
    return reached | {"defaults": function.__defaults__, "keyword defaults": function.__kwdefaults__}


def _cells(function: FunctionType) -> dict[str, CellType]:
    """Return the cells of a function's closure by name, without those that hold nothing yet."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell for name, cell in cells if cell != CellType()}


def _names(code: CodeType) -> set[str]:
    """Return the names that a function's code uses, and those that functions defined within it use."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _is_foreign(module: str | None) -> bool:
    """Say whether code belongs neither to this program nor to a library that keeps nothing of a batch."""
    return (module or "").partition(".")[0] not in _LIBRARIES


def _numbers(value: Any) -> Any:
    """Return a copy of a tensor's or an array's numbers, and None for anything else."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else None


def _equal(numbers: Any, value: Any) -> bool:
    """Say whether a tensor or an array holds the numbers that were copied, if any were; NaN is as good as NaN."""
    if numbers is None or value is None:
        return numbers is None and not isinstance(value, Tensor | np.ndarray)
    if isinstance(value, np.ndarray):
        return bool(numbers.shape == value.shape and numbers.tobytes() == value.tobytes())
    now = value.detach()
    return now.shape == numbers.shape and (torch.equal(now, numbers) or torch.allclose(
        now, numbers, rtol=0, atol=0, equal_nan=True))


def _differing(first: _Place, second: _Place) -> set[str]:
    """Return the names of parts that only one of two places has, or that are plain and not equal."""
    differing = set() if _equal(first.numbers, second.numbers) else {first.name}
    for key in first.contents.keys() | second.contents.keys():
        now, other = (place.contents.get(key, _MISSING) for place in (first, second))
        if (now is _MISSING) != (other is _MISSING) or (
                (isinstance(now, _PLAIN) or isinstance(other, _PLAIN)) and not _same(now, other)):
            differing.add(_joined(first.name, key))
    return differing


def _same(now: Any, before: Any) -> bool:
    """Say whether a part is the same object as before, or an equal number, text or tuple."""
    if isinstance(now, tuple) and isinstance(before, tuple) and len(now) == len(before):
        return all(map(_same, now, before))
    return now is before or (type(now) is type(before) and isinstance(now, _PLAIN) and repr(now) == repr(before))


def _put_back(value: Any, contents: _Contents) -> None:
    """Give a value the parts that it had."""
    if isinstance(value, list | deque):
        value.clear()
        value.extend(contents.values())
    elif isinstance(value, dict | set):
        value.clear()
        value.update(contents)
    elif isinstance(value, FunctionType):
        _put_reached_back(value, contents)
    elif isinstance(value, type):
        for name in vars(value).keys() | contents.keys():
            _put_attribute_back(value, name, contents)
    else:
        attributes = vars(value)
        attributes.clear()
        attributes.update(contents)
        if attributes.pop("class", type(value)) is not type(value):
            value.__class__ = contents["class"]


def _put_attribute_back(owner: type, name: str, contents: _Contents) -> None:
    """Give a class the attribute that it had, or take a new one away."""
    if name not in contents:
        delattr(owner, name)
    elif name != "bases" and vars(owner).get(name, _MISSING) is not contents[name]:
        setattr(owner, name, contents[name])


def _put_reached_back(function: FunctionType, contents: _Contents) -> None:
    """Give a function the variables that it had; a global variable that is new goes."""
    for name, cell in _cells(function).items():
        cell.cell_contents = contents.get(f"closure variable {name}")
    for name in _names(function.__code__):
        if f"global variable {name}" in contents:
            function.__globals__[name] = contents[f"global variable {name}"]
        else:
            function.__globals__.pop(name, None)
    function.__defaults__, function.__kwdefaults__ = contents["defaults"], contents["keyword defaults"]


def _put_numbers_back(value: Any, numbers: Any) -> None:
    """Give a tensor or an array the numbers that it had."""
    if isinstance(value, np.ndarray):
        value.resize(numbers.shape, refcheck=False)
        value[...] = numbers
    elif value.shape == numbers.shape:
        value.data.copy_(numbers)
    else:
        value.data = numbers.clone()
