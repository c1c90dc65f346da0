"""Arrays from other machines: what they claim to be, before they are read, and whether their bytes are that."""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np
import torch
from flwr.app import Array
from flwr.common.constant import SType
from numpy.lib import format as npy


def type_name(dtype: torch.dtype) -> str:
    """Return the name that torch and numpy share for a type of numbers."""
    return str(dtype).removeprefix("torch.")


def claim(array: Array) -> tuple[tuple[int, ...], str]:
    """Return shape and type of an array, as it claims before it is read."""
    tensor = array.__dict__.get("tensor")
    if tensor is not None:
        return tuple(tensor.shape), type_name(tensor.dtype)
    return tuple(array.shape) if isinstance(array.shape, tuple | list) else (), array.dtype


def number_of_bytes(array: Array) -> int:
    """Return the number of bytes of an array, without serialising it."""
    tensor = array.__dict__.get("tensor")
    return len(array.data) if tensor is None else int(tensor.nbytes)


def keeps_its_claim(array: Array, shape: tuple[int, ...], dtype: str) -> bool:
    """Return whether an array's bytes are what it claims; reading others could take any amount of memory."""
    if "tensor" in array.__dict__:
        return True
    if array.stype != SType.NUMPY:
        return False
    file = BytesIO(array.data)
    try:
        kind = np.dtype(dtype)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        actual_shape, _, actual = read(file)
    except (TypeError, ValueError, KeyError, SyntaxError):
        return False
    size = math.prod(shape) * kind.itemsize
    return actual_shape == shape and actual == kind and len(array.data) - file.tell() == size
