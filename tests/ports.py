"""Ports of this machine that nobody else is given."""

from __future__ import annotations

import socket

_HELD: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Return ports that the operating system gives to no other program while this process is there.

    Each is bound here, without listening, so that a program which is told the number can listen at it.
    """
    for _ in range(count):
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        _HELD.append(held)
    return [held.getsockname()[1] for held in _HELD[-count:]]
