"""A wire that writes down what goes over it: a forwarder of TCP between SuperNodes and a SuperLink."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Wire:
    """What was said in both directions, one connection after the other: a name that lies in two reads is one name."""

    def __init__(self) -> None:
        self._said: list[tuple[bytearray, bytearray]] = []

    def connect(self) -> tuple[bytearray, bytearray]:
        """Return where to write down what goes up one new connection, and down."""
        self._said.append((bytearray(), bytearray()))
        return self._said[-1]

    @property
    def up(self) -> bytes:
        """What nodes said."""
        return b"\n".join(up for up, _ in self._said)

    @property
    def down(self) -> bytes:
        """What the SuperLink said."""
        return b"\n".join(down for _, down in self._said)


@contextmanager
def recorded(port: int, to: int) -> Iterator[Wire]:
    """Forward connections at a port to another one, and write down all bytes."""
    wire, opened = Wire(), [socket.create_server(("127.0.0.1", port))]

    def pump(source: socket.socket, sink: socket.socket, said: bytearray) -> None:
        """Forward one direction until it ends."""
        with suppress(OSError):
            while data := source.recv(65536):
                said.extend(data)
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        """Accept connections until the port is closed."""
        with suppress(OSError):
            while True:
                near, _ = opened[0].accept()
                far = socket.create_connection(("127.0.0.1", to))
                opened.extend((near, far))
                up, down = wire.connect()
                for parts in ((near, far, up), (far, near, down)):
                    threading.Thread(target=pump, args=parts, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield wire
    finally:
        for each in opened:
            each.close()
