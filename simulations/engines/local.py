"""Flower within one process: its grid, whose handlers are called directly, and its log, silenced.

Tensors travel by reference.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from simulations.engines.numbered import NumberedGrid


@contextmanager
def quiet_flower(least: int = logging.WARNING) -> Iterator[None]:
    """Silence Flower's log below a level, as a context.

    Args:
        least: Lowest level of `logging` that is still shown; the environment's FEDFAIR_LOG, a level's name, wins over
            it.

    Examples:
        >>> with quiet_flower(logging.ERROR):
        ...     logging.getLogger("flwr").isEnabledFor(logging.WARNING)
        False
    """
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(os.environ.get("FEDFAIR_LOG", "").upper() or least)
    try:
        yield
    finally:
        logger.setLevel(level)


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
