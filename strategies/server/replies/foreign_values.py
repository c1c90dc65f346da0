"""What another machine sent, before anybody reads it: arrays and texts.

Arrays from other machines: what they claim to be, before they are read, and whether their bytes are that.

Text that another machine wrote, made safe to show: no escapes of terminals, no markup, and a bounded length.
"""

from __future__ import annotations

import math
import re
import unicodedata
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


_MOST = 500  # characters of a failure's reason
_MOST_OF_A_VALUE = 100
_MARKUP = re.compile(r"\[(/?[a-zA-Z#@][^\[\]]*|/)\]")  # what rich takes for a tag
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # controls, turns of the writing direction, private characters, breaks


def safe(text: str, most: int = _MOST) -> str:
    """Return `text` without control characters, with tags in round brackets, cut to `most` characters.

    Args:
        text: What a node sent.
        most: Number of characters that are kept.
    """
    kept = text[:8 * most]  # the rest is not worth reading
    seen = "".join(" " if unicodedata.category(one) in _UNSEEN else one for one in kept)
    plain = _MARKUP.sub(r"(\1)", " ".join(seen.split()))
    return plain if len(plain) <= most and len(kept) == len(text) else f"{plain[:most - 3]}..."


def shown(value: object) -> str:
    """Return a value that a node sent as it is shown in an error.

    Args:
        value: Anything; a long one is cut.
    """
    if isinstance(value, str | bytes | list | tuple):
        value = value[:_MOST_OF_A_VALUE]  # before it is written out
    return safe(repr(value), _MOST_OF_A_VALUE)
