"""Which client of an app is charged for what a node did: by the name that its owner gave, or by its node's id.

Flower's id of a node stays with the node's key. A node without a key gets another id whenever it is started again, and
its records would be charged as those of another client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flwr.app import Message

from fedfair.node.node import ClientError
from fedfair.node.private_training import MOST_OF_A_NAME
from strategies.server.replies.foreign_values import shown
from strategies.server.replies.reply_checks import UNCHANGED, named

log = logging.getLogger(__name__)

_MEND = ("give every node a key (flower-supernode --auth-supernode-private-key) or a name (--node-config "
         "'name=\"ward-3\"', and train_privately(..., name=...) in the client), and run again")


class Client(NamedTuple):
    """A client that has answered: its number in the ledger, and its number of records."""

    number: int
    size: int


class KnownClients:
    """The clients that have answered, and the nodes that were there when the run began.

    Nodes that were there together at the beginning, before any message of the run was sent, are different clients. One
    that comes later may be one of them that was started again. It is the same client if it gives the same name, and
    another one if it gives another name and all clients so far gave theirs; else it cannot be told apart.
    """

    def __init__(self) -> None:
        self._there: frozenset[int] = frozenset()
        self._names: dict[int, str] = {}  # of nodes that have answered; "" for none
        self._clients: dict[str | int, Client] = {}  # by name, or by the id of a node without one

    def __contains__(self, node: int) -> bool:
        """Return whether a node has answered."""
        return node in self._names

    def __getitem__(self, node: int) -> Client:
        """Return the client of a node that has answered."""
        return self._clients[self._names[node] or node]

    @property
    def records(self) -> int:
        """The number of records of all clients together."""
        return sum(client.size for client in self._clients.values())

    def begin(self, nodes: Iterable[int]) -> None:
        """Enter the nodes that are there before the first message of the run is sent.

        Args:
            nodes: Their ids.
        """
        self._there = self._there or frozenset(nodes)

    def recognisable(self, asked: Sequence[Message]) -> list[Message]:
        """Return messages without those to nodes that may be a client of which another node answered.

        Args:
            asked: Messages to nodes.

        Raises:
            ValueError: If none is left.
        """
        nodes = [message.metadata.dst_node_id for message in asked]
        refused = [node for node in nodes if "" in self._names.values() and self.came_later(node)]
        if not refused:
            return list(asked)
        why = (f"node {named(sorted(refused), 'and')} came after the run began; a node without a key that is started "
               f"again has another id, and its records would be charged as those of another client: {_MEND}")
        if len(refused) == len(nodes):
            raise ValueError(why)
        log.warning("Left out of the round: %s", why)
        return [message for message in asked if message.metadata.dst_node_id not in refused]

    def came_later(self, node: int) -> bool:
        """Return whether a node was not there at the beginning, and has not answered yet.

        Args:
            node: Its id.
        """
        return node not in self._there and node not in self._names

    def check(self, node: int, name: object) -> str:
        """Return the name that a node gives, "" for none.

        Args:
            node: Its id.
            name: What it sent as its name, None for nothing.

        Raises:
            ClientError: For what is no name, another name than the node gave before, or none where one was needed.
        """
        text = "" if name is None else name
        if not isinstance(text, str) or not text.isprintable() or len(text) > MOST_OF_A_NAME or name == "":
            raise ClientError(f"node {node} sent the name {shown(name)}, but one of 1 to {MOST_OF_A_NAME} printable "
                              f"characters is expected: {UNCHANGED}")
        if self._names.get(node, text) != text:
            raise ClientError(f"node {node} says that its name is {shown(name)}, but it was "
                              f"{shown(self._names[node] or None)} before: {UNCHANGED}; leave it as it is during a run")
        if self.came_later(node) and not text:
            raise ClientError(f"node {node} came after the run began, and gives no name: {UNCHANGED}; {_MEND}")
        return text

    def size(self, node: int, name: str) -> int | None:
        """Return the number of records that a node's client told before, or None.

        Args:
            node: The node's id.
            name: Its name; "" for none.
        """
        known = self._clients.get(name or node)
        return None if known is None else known.size

    def enter(self, node: int, name: str, size: int) -> None:
        """Enter what a node says of its client.

        Args:
            node: The node's id.
            name: Its name; "" for none.
            size: Its client's number of records.
        """
        self._names[node] = name
        self._clients.setdefault(name or node, Client(len(self._clients), size))


def refuse_doubles(names: Iterable[str]) -> None:
    """Raise `ClientError` if two nodes gave one name in one round.

    Args:
        names: Names of the nodes that answered in a round; "" for none.
    """
    given = [name for name in names if name]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise ClientError(f"two nodes say that their name is {shown(twice[0])}, and both were charged as that client: "
                          f"{UNCHANGED}; give each node a name of its own")
