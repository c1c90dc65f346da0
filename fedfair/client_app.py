"""The Flower ClientApp: one node answers for the clients that it holds, with their contributions added up.

A run may have any number of nodes: of n nodes, node p holds the clients p, p + n, p + 2n, .... A node with a file of
its own may hold a client for each of its sites: the server then says from which number on they are numbered. Sums are
taken in the order of client numbers.

Which column names the sites is the node's own word. All that leaves of it is the number of sites, and how many records
of each group each has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from fedfair.datasets.schema import SchemaMismatch
from fedfair.gradients.kernels import give_back
from fedfair.node.exchanges import find_exchange
from fedfair.node.masked_sums import keep_party, recall_party
from fedfair.node.node import ClientError, Node
from fedfair.node.policy import Refused, find_policy, read_policy
from fedfair.plugins.user_files import UserFileError, sentence_of
from fedfair.protocol.exchange import Request, plan_text
from fedfair.protocol.fields import MOST_CLIENTS
from fedfair.protocol.messages import ACTION, CLIENTS, program
from fedfair.protocol.task import Task
from fedfair.protocol.task_data import MANY, keep_latest

if TYPE_CHECKING:
    from fedfair.node.guard import Guard

app = ClientApp()
log = logging.getLogger(__name__)


@app.query(ACTION)
@app.train(ACTION)
@app.evaluate(ACTION)
def answer(message: Message, context: Context) -> Message:
    """Answer a message with the exchange that it names, as far as the node's policy allows, if it has one.

    Without a policy, expected errors become a failure that names the client and says what is wrong.
    """
    policy = find_policy(context.node_config)
    if policy is not None:
        return Message(_guarded(message, context, policy), reply_to=message)
    try:
        content = _content(message, context, None)
    except Exception as error:
        content = _failure(context, _said_of(error))
    return Message(content, reply_to=message)


def _said_of(error: Exception) -> str:
    """Return what leaves the node of an error; raise it again if it is none that is expected.

    Of one in a file of the user's only the line leaves, since its words may quote records; the node's log has them.
    """
    located = None if isinstance(error, UserFileError | ClientError) else sentence_of(error, quoted=False)
    if located is not None:
        log.warning("%s", sentence_of(error))
        return located
    if not isinstance(error, ClientError | ValueError | OSError):
        raise error
    return str(error)


def _guarded(message: Message, context: Context, policy: Path) -> RecordDict:
    """Answer a message as the policy allows.

    Nothing that an error says leaves the node, for it may quote records; the node's own log has it.
    """
    from fedfair.node.guard import Guard  # with scipy, which nodes without a policy do without

    number = context.node_config["partition-id"]
    try:
        return _content(message, context, Guard(read_policy(policy), f"{context.run_id}/{context.node_id}"))
    except (Refused, SchemaMismatch) as refusal:
        log.warning("A request was refused: %s", refusal)
        return _failure(context, f"node {number} refuses the request: {refusal}")
    except Exception:
        log.exception("A request could not be answered")
        return _failure(context, f"node {number} could not answer the request: its own log says why")


def _content(message: Message, context: Context, guard: Guard | None) -> RecordDict:
    """Return what a node answers to a message, after its guard, if it has one, let it pass."""
    number, nodes = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    name, text = str(message.content["exchange"]["name"]), str(message.content["task"]["json"])
    entry, text = guard.admit_names(name, text, plan_text(message)) if guard else (None, text)
    file, site = (entry.file, entry.site) if entry else map(context.node_config.get, ("data", "site"))
    first, clients = _given_numbers(message.content)
    task = _task(text, str(file or ""), nodes, str(site or ""), clients)
    _refuse_change(context, task)
    node = node_of(task, number, nodes, first)
    refuse_single_records(task, node.clients.group_sizes("train"))
    node.kept, node.party = _kept_batch(context), recall_party(context.state)
    exchange, request = find_exchange(name), Request(message, task, node.device)
    if guard and entry:
        guard.admit(entry, exchange, node, request)
    content = exchange(node, request)
    _keep_batch(context, node)
    keep_party(context.state, node.party)
    content["node"] = _node_record(number, nodes, len(node.clients), first)
    content["exchange"] = message.content["exchange"]  # so that an answer to another request is noticed
    if len(node.clients.together.train) > MANY:
        give_back()
    return content


def _failure(context: Context, reason: str) -> RecordDict:
    """Return an answer that says only why there is none."""
    return RecordDict({"failure": ConfigRecord({"node": int(context.node_config["partition-id"]), "reason": reason})})


_Made = dict[tuple[int, int, str | None, int, str | None, int | None], Node]
_LATEST: dict[Task, _Made] = {}


def _nodes(task: Task) -> _Made:
    """Keep the nodes made so far for the two latest tasks in this process, by number, number of nodes, the file that
    they opened, in one state, its column of sites, and the number of their first client, if they were told.

    Nodes with files of their own have one task.
    """
    return keep_latest(_LATEST, task, _LATEST.get(task, {}), _records, 2)


def _records(made: _Made) -> int:
    """Return the number of training records of some nodes."""
    return sum(len(node.clients.together.train) for node in made.values())


def node_of(task: Task, number: int, nodes: int, first: int | None = None) -> Node:
    """Return node `number` of `nodes`, with the records that it holds of a task; its clients are numbered from `first`
    on, if that is given.
    """
    made, key = _nodes(task.as_sent), (number, nodes, task.csv, task.modified, task.site, first)
    if key not in made:
        made[key] = Node(task.clients_data(number, nodes, first), task.build_model().to(task.device), task.device)
    return made[key]


@contextmanager
def replaced_nodes(task: Task, nodes: Sequence[Node]) -> Iterator[None]:
    """Temporarily replace a task's nodes 0, 1, ... in this process (used by audits)."""
    made = _nodes(task.as_sent)
    before = dict(made)
    for number, node in enumerate(nodes):
        for first in (None, *node.clients.numbers[:1].tolist()):
            made[number, len(nodes), task.csv, task.modified, task.site, first] = node
    try:
        yield
    finally:
        made.clear()
        made.update(before)


@lru_cache(maxsize=8)
def _task(text: str, file: str, nodes: int, site: str, clients: int | None) -> Task:
    """Read the task that a message names; the node's own `file` and `site`, if it has them, never come from one."""
    return Task.model_validate_json(text).at_node(file, nodes, site, clients)


def _given_numbers(content: RecordDict) -> tuple[int | None, int | None]:
    """Return the number of the node's first client and that of all clients, as a server gives them; None if it gives
    none.

    Args:
        content: The records of a message.

    Raises:
        ClientError: For numbers that cannot be.
    """
    record = content.get(CLIENTS)
    if not isinstance(record, ConfigRecord):
        return None, None
    first, clients = record.get("first"), record.get("of")
    if not (type(first) is int and type(clients) is int and 0 <= first < clients <= MOST_CLIENTS):
        raise ClientError(f"the server numbers the node's clients from {first!r} on, of {clients!r}: it must be from 0 "
                          f"to {MOST_CLIENTS:,}; does it run the same version of the program?")
    return first, clients


def refuse_single_records(task: Task, sizes: Tensor) -> None:
    """Refuse sites that would tell of a single training record, before anything is told of any.

    Numbers of records by client and group are public, and of a single record they tell the group.

    Args:
        task: The task, with the node's own column of sites, if it has one.
        sizes: Numbers of training records by client and group, `[m, K]`.

    Raises:
        SchemaMismatch: If there is such a site; it is not named.
    """
    if task.site is not None and bool((task.public_sizes(sizes).sum(1) == task.round_sizes).any()):
        raise SchemaMismatch(["one of its sites may have a single training record, whose group the public numbers "
                              "would tell; its owner can put sites together, or leave site out"])


def _refuse_change(context: Context, task: Task) -> None:
    """Raise `ClientError` if the user's file has changed since the node's first message.

    The run was planned for the records that the file had then.
    """
    first = context.state.config_records.setdefault("file", ConfigRecord({"modified": task.modified}))
    if first["modified"] != task.modified:
        raise ClientError(f"{task.csv} was changed while the run went on, which was planned for the records that it "
                          "had: leave the file alone, and run again")


def _kept_batch(context: Context) -> tuple[str, Tensor] | None:
    """Return the batch of `Node.kept` from the state that Flower keeps for the node between messages."""
    kept = context.state.config_records.get("batch")
    if kept is None:
        return None
    rows = np.frombuffer(cast(bytes, kept["rows"]), np.int64)
    return str(kept["label"]), torch.from_numpy(rows.copy())


def _keep_batch(context: Context, node: Node) -> None:
    """Keep the batch of `Node.kept` for the node's next message; it never leaves the node."""
    if node.kept is not None:
        context.state["batch"] = ConfigRecord({"label": node.kept[0], "rows": node.kept[1].numpy().tobytes()})


@lru_cache(maxsize=1024)
def _node_record(number: int, nodes: int, clients: int, first: int | None) -> ConfigRecord:
    """Return what a node says of itself in all replies: its number, those of all nodes and of its clients, its program,
    and the number of its first client, if it was told.
    """
    told = {} if first is None else {"first": first}
    return ConfigRecord({"number": number, "of": nodes, "clients": clients, "program": program(), **told})
