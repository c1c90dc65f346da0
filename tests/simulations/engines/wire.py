"""A wire that writes down what goes over it: a forwarder of TCP between SuperNodes and a SuperLink."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Wire:
    """What was said in both directions."""

    def __init__(self) -> None:
        self.up, self.down = bytearray(), bytearray()


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
                for parts in ((near, far, wire.up), (far, near, wire.down)):
                    threading.Thread(target=pump, args=parts, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield wire
    finally:
        for each in opened:
            each.close()
