"""Flower grid over Ray actors: each actor is one node, and keeps its clients' records from round to round.

Ray restarts an actor that died, on any machine that has room, and asks it again. With a seed, handlers are pure
functions of the message (seed and step are in it), so the answer is the one that was lost: a single release. Without a
seed the answer would be another release, so no actor is asked again (`Engine.without_repeats`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import ray
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from ray.exceptions import RayError, RayTaskError

from fedfair.protocol.messages import unpacked
from simulations.engines.numbered import NumberedGrid
from simulations.engines.ray_workers import Shape, within_messages, workers

_NUMBERS = count(1)  # of everything that this process puts: workers outlive grids


class _Put(NamedTuple):
    """Arrays, their number, and what is sent for them: the arrays, or their reference in the object store."""

    arrays: dict[str, ArrayRecord]
    number: int
    sent: Any


class _Asked(NamedTuple):
    """Message, its node, the worker that was asked, and the reference to its reply and the node's next state."""

    message: Message
    context: Context
    worker: Any
    reply: Any


class RayGrid(NumberedGrid):
    """Grid of `nodes` nodes that run `client_app`, each in a Ray actor of this `shape`; needs a connection to a
    cluster.

    Large arrays that several messages share travel once, through the object store. A worker that died, or does not
    answer within `timeout` seconds, is restarted and asked again, `shape.restarts` times. After that, or when a handler
    raises, the reply is a Flower error that says what happened.
    """

    def __init__(self, client_app: ClientApp, nodes: int, shape: Shape, timeout: float) -> None:
        super().__init__(nodes)
        self._workers = workers(client_app, nodes, shape)
        self._shape, self._timeout = shape, timeout
        self._asked: dict[str, _Asked] = {}
        self._latest = _Put({}, 0, {})

    def _ask(self, number: str, message: Message, context: Context) -> None:
        """Call the node's worker."""
        records = message.content
        light = RecordDict({name: record for name, record in records.items() if not isinstance(record, ArrayRecord)})
        put = self._put({name: record for name, record in records.items() if isinstance(record, ArrayRecord)})
        worker = self._workers[int(context.node_config["partition-id"])]
        reply = worker.answer.remote(light, message.metadata.message_type, context, put.number, put.sent)
        self._asked[number] = _Asked(message, context, worker, reply)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived, in the order of the given numbers, and forget them."""
        numbers = [number for number in message_ids if number in self._asked]
        missing = _missing([self._asked[number] for number in numbers], 0)
        return [self._reply(self._asked.pop(number)) for number in numbers if self._asked[number] not in missing]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Return a reply to every message, in their order.

        The reply is an error if none came within `timeout` seconds in all, or if the worker did not answer after its
        last restart.
        """
        numbers = list(self.push_messages(messages))
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        waiting = [self._asked[number] for number in numbers]
        for left in reversed(range(self._shape.restarts + 1)):
            waiting = _missing(waiting, min(self._timeout, max(0.0, end - time.monotonic())))
            for asked in waiting:
                if not left:
                    ray.cancel(asked.reply)  # or a worker that is just being restarted would begin with it
                ray.kill(asked.worker, no_restart=False)
        replies = [self._asked.pop(number) for number in numbers]
        return [self._late(asked) if asked in waiting else self._reply(asked) for asked in replies]

    def _put(self, arrays: dict[str, ArrayRecord]) -> _Put:
        """Return what to send for `arrays`; large arrays of the latest message are in the object store already."""
        latest = self._latest.arrays
        if latest.keys() != arrays.keys() or any(latest[name] is not arrays[name] for name in arrays):
            size = sum(tensor.nbytes for record in arrays.values() for tensor in unpacked(record).values())
            sent = arrays if size <= within_messages() else ray.put(arrays)
            self._latest = _Put(arrays, next(_NUMBERS), sent)
        return self._latest

    def _late(self, asked: _Asked) -> Message:
        """Return an error that says that no reply came in time."""
        return Message(Error(ErrorCode.REPLY_MESSAGE_UNAVAILABLE, (
            f"no answer within {self._timeout:g} s{self._times('asked ', '')}: give it more time, or look for what "
            "hangs")), reply_to=asked.message)

    def _reply(self, asked: _Asked) -> Message:
        """Return the worker's reply, or an error that says why there is none; keep the node's state."""
        try:
            content, asked.context.state = ray.get(asked.reply)
            return Message(content, reply_to=asked.message)
        except RayTaskError as error:
            code, reason = ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error.cause).__name__}: {error.cause}"
        except RayError as error:
            code, reason = ErrorCode.NODE_UNAVAILABLE, (
                f"its worker died{self._times('', ' over')}: look for a lack of memory "
                f"({str(error).strip().splitlines()[-1]})")
        return Message(Error(code, reason), reply_to=asked.message)

    def _times(self, before: str, after: str) -> str:
        """Say how often a worker was asked, if more than once."""
        return f", {before}{self._shape.restarts + 1} times{after}" if self._shape.restarts else ""


def _missing(asked: Sequence[_Asked], within: float) -> list[_Asked]:
    """Return the requests without a reply after `within` seconds, in order."""
    if not asked:
        return []
    _, missing = ray.wait([one.reply for one in asked], num_returns=len(asked), timeout=within)
    return [one for one in asked if one.reply in missing]
