"""Nodes whose file holds several clients, one for each of the node's sites: how they are numbered, and what is refused.

Which column names the sites is the node's own word. All that leaves of it is the number of sites, and how many records
of each group each has.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from fedfair.datasets.schema import SchemaMismatch
from fedfair.node.node import ClientError
from fedfair.protocol.fields import MOST_CLIENTS
from fedfair.protocol.messages import CLIENTS
from fedfair.protocol.task import Task


def given_numbers(content: RecordDict) -> tuple[int | None, int | None]:
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
