"""Freed memory that a process keeps from one step to the next."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt, malloc.h
_LARGEST_BLOCK, _MOST_FREE = 2**30, 2**31 - 1  # bytes


@cache
def keep_freed() -> None:
    """Have the C library keep freed memory for as long as the process lives; a second call changes nothing.

    Every step needs blocks of the same sizes again. By default glibc returns freed blocks of some MiB to the system
    (mallopt(3)), which then clears every page anew when it is touched: up to a third of a private step of a
    convolutional network. Blocks of over 1 GiB, and free memory beyond 2 GiB, are returned as before. Does nothing if
    the C library is not glibc, or refuses.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_TRIM_THRESHOLD, _MOST_FREE)
