"""What all grids of this package share: numbered nodes, numbered messages, and replies that wait to be pulled."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import count

from flwr.app import Context, Message, RecordDict
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
