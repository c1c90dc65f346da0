"""A Flower grid within one process: handlers are called directly, and tensors travel by reference."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

_SERVER = 1


class LocalGrid(Grid):
    """`nodes` nodes that run `client_app`, numbered as in Flower's simulation ("partition-id", "num-partitions").

    An exception of a handler reaches the caller as it is.
    """

    def __init__(self, client_app: ClientApp, nodes: int) -> None:
        self._client_app = client_app
        self._contexts = {
            node + 2: Context(run_id=0, node_id=node + 2, node_config={"partition-id": node, "num-partitions": nodes},
                              state=RecordDict(), run_config={})
            for node in range(nodes)
        }
        self._numbers, self._replies = count(1), dict[str, Message]()
        self._run = Run.create_empty(0)
        _identify_process()

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
        """Answer every message at once, and keep the replies until they are pulled."""
        pushed = []
        for message in messages:
            number = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = number
            self._replies[number] = self._client_app(message, self._contexts[message.metadata.dst_node_id])
            pushed.append(number)
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The kept replies to the given messages, which are then forgotten."""
        return [self._replies.pop(number) for number in message_ids if number in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """The replies in the order of the messages; `timeout` has no meaning here."""
        return self.pull_messages(self.push_messages(messages))


def _identify_process() -> None:
    """Give the process the identity that Flower's messages ask for, unless a Flower runtime has given it one."""
    try:
        _ = TaskIdentity.run_id
    except RuntimeError:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 0, _SERVER, 0
