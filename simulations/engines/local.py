"""Flower within one process: its grid, whose handlers are called directly, and its log, silenced.

Tensors travel by reference. `NumberedGrid` is what all grids of this package share: numbered nodes, numbered messages,
and replies that wait to be pulled.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

_SERVER = 1


class NumberedGrid(Grid):
    """Grid of `nodes` nodes, numbered as in Flower's simulation ("partition-id", "num-partitions").

    `files` are the nodes' own, if they have some, and `site` is the column of their sites, if these are clients.
    """

    def __init__(self, nodes: int, files: Sequence[str] = (), site: str | None = None) -> None:
        self._contexts = {}
        for node in range(nodes):
            config: dict[str, bool | float | int | str] = {"partition-id": node, "num-partitions": nodes}
            config |= {"data": files[node]} if files else {}
            config |= {"site": site} if site else {}
            self._contexts[node + 2] = Context(run_id=0, node_id=node + 2, node_config=config, state=RecordDict(),
                                               run_config={})
        self._numbers = count(1)
        self._run = Run.create_empty(0)
        identify_process()

    @abstractmethod
    def _ask(self, number: str, message: Message, context: Context) -> None:
        """Bring a message to the node that `context` describes."""

    def set_run(self, run: Run) -> None:
        """See `Grid`."""
        self._run = run

    @property
    def run(self) -> Run:
        """See `Grid`."""
        return self._run

    def create_message(self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str,
                       ttl: float | None = None) -> Message:
        """See `Grid`."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """See `Grid`."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send every message, and return their numbers in order."""
        pushed = []
        for message in messages:
            number = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = number
            self._ask(number, message, self._contexts[message.metadata.dst_node_id])
            pushed.append(number)
        return pushed


def identify_process() -> None:
    """Give the process the identity that Flower's messages ask for, unless a Flower runtime has given it one."""
    try:
        _ = TaskIdentity.run_id
    except RuntimeError:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 0, _SERVER, 0


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
