"""A Flower grid within one process: handlers are called directly, and tensors travel by reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from simulations.engines.numbered import NumberedGrid


class LocalGrid(NumberedGrid):
    """Grid of `nodes` nodes that run `client_app` in this process, one after the other.

    `files` are the nodes' own, if they have some, and `site` is the column of their sites, if these are clients. An
    exception of a handler reaches the caller as it is.
    """

    def __init__(self, client_app: ClientApp, nodes: int, files: Sequence[str] = (), site: str | None = None) -> None:
        super().__init__(nodes, files, site)
        self._client_app = client_app
        self._replies: dict[str, Message] = {}

    def _ask(self, number: str, message: Message, context: Context) -> None:
        """Answer at once, and keep the reply until it is pulled."""
        self._replies[number] = self._client_app(message, context)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to the given messages, and forget them."""
        return [self._replies.pop(number) for number in message_ids if number in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Return the replies in the order of the messages; `timeout` is ignored."""
        return self.pull_messages(self.push_messages(messages))
