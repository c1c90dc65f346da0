"""Exchanges: the requests that a server can make of a node, each a named function that runs on the node.

The name of an exchange is that of its module and function, "fairlens_sums.send_batch_sums". So a node needs no list of
exchanges: it looks among the modules of fedfair, and for a file of the user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, Literal, NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict

from fedfair.accounting.events import Release
from fedfair.gradients.layer_gradients import Gradients
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

    Examples:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> from fedfair.protocol.messages import pack
        >>> weights, options = pack({"bias": torch.zeros(2)}), ConfigRecord({"share": 0.5})
        >>> message = SimpleNamespace(content=RecordDict({"weights": weights, "options": options}))
        >>> request = Request(message, Task(), device="cpu")
        >>> request.tensors("weights"), request.options["share"], request.has("round"), request.plan
        ({'bias': tensor([0., 0.])}, 0.5, False, None)
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

    def has(self, name: str) -> bool:
        """Say whether the message has a record of this name.

        Args:
            name: Name of the record.
        """
        return name in self._message.content

    @property
    def weights(self) -> Gradients:
        """The weights of the model, on the node's device."""
        return self.tensors("weights")

    @property
    def round(self) -> Round:
        """The plan of the round; `ValueError` for a rule or query that the node does not know."""
        return Round.from_json(str(self._message.content["round"]["json"]))

    @property
    def plan(self) -> str | None:
        """The plan of the round as it travels, or None for a message without one."""
        return plan_text(self._message)

    @property
    def options(self) -> ConfigRecord:
        """What the server added by name: numbers, texts or lists of them."""
        return self._message.content.config_records["options"]


def plan_text(message: Message) -> str | None:
    """Return the plan of the round in a message, as JSON, or None for a message without one.

    Args:
        message: The message.

    Examples:
        >>> from types import SimpleNamespace
        >>> plan_text(SimpleNamespace(content=RecordDict({"round": ConfigRecord({"json": '{"step": 0}'})})))
        '{"step": 0}'
    """
    return str(message.content["round"]["json"]) if "round" in message.content else None


Answer = Callable[[Any, Request], RecordDict]
"""From a node and a request to what leaves the node."""


class Promise(NamedTuple):
    """What a node can promise about an answer by its own noise, whatever server and other nodes do.

    Attributes:
        release: What a record is charged for one step of the answer; None if it says nothing of records beyond public
            numbers.
        steps: Number of equal steps.
        batch: Name of the batch, where a later exchange can ask for more about the same batch.
        follows: The part of the charge that is for a gradient sum over the same batch, which a later exchange asks for;
            None if there is none.

    Examples:
        >>> Promise(Release(rate=0.01, multiplier=1.0), steps=10)
        Promise(release=Release(rate=0.01, multiplier=1.0), steps=10, batch='', follows=None)
    """

    release: Release | None
    steps: int = 1
    batch: str = ""
    follows: Release | None = None


Promising = Callable[[Any, Request, bool], Promise]
"""From a node, a request, and whether the server's noise counts, to what the node can promise of its answer."""


class Exchange:
    """A request that a server can make: a function that runs on the node, named after its module or file and itself.

    Args:
        category: Flower's kind of message.
        answer: The node's function.
        promise: What the node can promise of the answer; None if it can promise nothing, since exact figures leave.

    Examples:
        >>> from fedfair.node.exchanges import send_sizes
        >>> send_sizes.name, send_sizes.category
        ('exchanges.send_sizes', 'query')
    """

    def __init__(self, category: Category, answer: Answer, promise: Promising | None = None) -> None:
        self.category, self.answer, self.promise = category, answer, promise
        self.name = name_in_file(answer) or f"{answer.__module__.rpartition('.')[2]}.{answer.__name__}"
        update_wrapper(self, answer)

    def __call__(self, node: Any, request: Request) -> RecordDict:
        """Answer a request on a node."""
        return self.answer(node, request)


def exchange(category: Category, promise: Promising | None = None) -> Callable[[Answer], Exchange]:
    """Return a decorator that makes an exchange of a function.

    Args:
        category: Flower's kind of message.
        promise: What a node can promise of the answer, for its own ledger; None if exact figures leave. A node with a
            policy answers such an exchange only if the policy lists it as exact.

    Examples:
        >>> @exchange("query", promise=lambda node, request, trusts_server: Promise(None))
        ... def send_clients(node, request):
        ...     return RecordDict({"clients": ConfigRecord({"number": len(node.clients)})})
        >>> send_clients.category, send_clients.promise(None, None, False)
        ('query', Promise(release=None, steps=1, batch='', follows=None))
    """
    return partial(Exchange, category, promise=promise)
