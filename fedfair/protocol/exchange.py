"""Exchanges: the requests that a server can make of a node, each a named function that runs on the node.

The name of an exchange is that of its module and function, "fairlens_sums.send_batch_sums". So a node needs no list of
exchanges: it looks among the modules of fedfair, and for a file of the user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, Literal

from flwr.app import ConfigRecord, Message, RecordDict

from fedfair.gradients.layers import Gradients
from fedfair.plugins.user_files import name_in_file
from fedfair.protocol.messages import unpack
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task

Category = Literal["train", "evaluate", "query"]
"""Flower's kinds of messages."""


class Request:
    """A server's message, as the node that it was sent to reads it.

    Args:
        message: The message.
        task: The task that it names.
        device: The device that the node computes on.
    """

    def __init__(self, message: Message, task: Task, device: str) -> None:
        self.task = task
        self._message, self._device = message, device

    def tensors(self, name: str) -> Gradients:
        """Return the tensors of one record of the message, by name, on the node's device.

        Args:
            name: Name of the record.
        """
        return {key: value.to(self._device) for key, value in unpack(self._message.content, name).items()}

    @property
    def weights(self) -> Gradients:
        """The weights of the model, on the node's device."""
        return self.tensors("weights")

    @property
    def round(self) -> Round:
        """The plan of the round; `ValueError` for a rule or query that the node does not know."""
        return Round.from_json(str(self._message.content["round"]["json"]))

    @property
    def options(self) -> ConfigRecord:
        """What the server added by name: numbers, texts or lists of them."""
        return self._message.content.config_records["options"]


Answer = Callable[[Any, Request], RecordDict]
"""From a node and a request to what leaves the node."""


class Exchange:
    """A request that a server can make: a function that runs on the node, named after its module or file and itself.

    Args:
        category: Flower's kind of message.
        answer: The node's function.
    """

    def __init__(self, category: Category, answer: Answer) -> None:
        self.category, self.answer = category, answer
        self.name = name_in_file(answer) or f"{answer.__module__.rpartition('.')[2]}.{answer.__name__}"
        update_wrapper(self, answer)

    def __call__(self, node: Any, request: Request) -> RecordDict:
        """Answer a request on a node."""
        return self.answer(node, request)


def exchange(category: Category) -> Callable[[Answer], Exchange]:
    """Return a decorator that makes an exchange of a function.

    Args:
        category: Flower's kind of message.
    """
    return partial(Exchange, category)
