"""Secure sums between nodes: each node is a party (`fedfair.secure_sums`), and sums over its own clients first.

A method's sum travels in four exchanges: `send_keys`, `send_key_shares`, then one of the method's own that ends in
`masked`, and `send_unmasking`. The node's secrets stay in the state that Flower keeps for it between messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import torch
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from fedfair.mechanisms.clipping import sensitivity
from fedfair.mechanisms.integer_sums import noisy_steps, refuse_misfit
from fedfair.mechanisms.noise import Trust, client_share
from fedfair.mechanisms.randomness import source
from fedfair.node.exchanges import promise_sum, public_numbers
from fedfair.node.node import Node
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.messages import pack
from fedfair.protocol.round import Round
from fedfair.secure_sums.party import Party, begun

_STATE = "secure sum"


@exchange("query", public_numbers)
def send_keys(node: Node, request: Request) -> RecordDict:
    """Send new public keys for a secure sum, and forget any sum before."""
    node.party = begun(str(request.options["sum"]))
    sealing, masking = node.party.public_keys
    return RecordDict({"keys": ConfigRecord({"sealing": sealing, "masking": masking})})


@exchange("query", public_numbers)
def send_key_shares(node: Node, request: Request) -> RecordDict:
    """Send shares of the secrets of the node's masks, sealed for each party."""
    options = request.options
    node.party, sealed = _party(node).shared(
        str(options["sum"]), cast(int, options["threshold"]), cast(list[bytes], options["sealing"]),
        cast(list[bytes], options["masking"]))
    return RecordDict({"shares": ConfigRecord({"sealed": sealed})})


@exchange("query", public_numbers)
def send_unmasking(node: Node, request: Request) -> RecordDict:
    """Send shares that open the masks of the sum over those whose integers arrived, and no others."""
    options = request.options
    node.party, told = _party(node).unmasking(str(options["sum"]), cast(list[int], options["survivors"]))
    return RecordDict({"unmasking": ConfigRecord({"shares": told})})


@exchange("train", promise_sum)
def send_masked_gradient_sum(node: Node, request: Request) -> RecordDict:
    """Send the clipped gradient sum of all records, rounded to the grid of its noise, under masks."""
    return masked(node, request, node.exact_gradient_sum(request.weights, request.round),
                  len(node.clients.together.train))


def masked(node: Node, request: Request, sums: Mapping[str, Tensor], units: int) -> RecordDict:
    """Return sums in whole steps of the noise's grid, with the noise of all of the node's clients, under masks.

    Args:
        node: The node.
        request: The request, with the round and with what other parties sealed for this one.
        sums: Exact sums over the node's clients, within what the round's rule allows for each record.
        units: Public number of records (or participants) that were added up.

    Raises:
        ValueError: For a round whose noise is not the clients' together, and for what `Party.masked` refuses.
    """
    round_, options = request.round, request.options
    deviation = share_deviation(round_)
    assert round_.rule is not None
    refuse_misfit(deviation, sensitivity(round_.rule, len(round_.rates)), sum(map(Tensor.numel, sums.values())), units,
                  units, round_.clients)
    steps = noisy_steps(sums, deviation, (source(round_.key, "noise", number + 1, round_.step)
                                          for number in node.clients))
    node.party, hidden = _party(node).masked(str(options["sum"]), steps, cast(list[int], options["senders"]),
                                             cast(list[bytes], options["sealed"]))
    return RecordDict({"masked": pack({"numbers": torch.from_numpy(hidden.view(np.int64))})})


def share_deviation(round_: Round) -> float:
    """Return the standard deviation of each client's share of the noise on a round's sum.

    Raises `ValueError` for a round whose noise is not discrete, or not shared by the clients.
    """
    if round_.trust is not Trust.DISTRIBUTED or round_.noise != "discrete" or round_.rule is None:
        raise ValueError(f"a secure sum has discrete noise that the clients share, but the round has {round_.noise} "
                         f"noise and trust {round_.trust.value}")
    return round_.deviation(client_share(round_.trust, round_.clients))


def recall_party(state: RecordDict) -> Party | None:
    """Return the node's part in the latest secure sum from the state that Flower keeps for the node, or None."""
    kept = state.config_records.get(_STATE)
    if kept is None:
        return None
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()}
    return Party(**values)


def keep_party(state: RecordDict, party: Party | None) -> None:
    """Keep the node's part in a secure sum for its next message; it never leaves the node."""
    if party is not None:
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(party).items()}
        state[_STATE] = ConfigRecord({name: value for name, value in values.items() if value != []})


def _party(node: Node) -> Party:
    """Return the node's part in the latest secure sum; raise `ValueError` if there is none."""
    if node.party is None:
        raise ValueError("no secure sum was begun here: ask for the node's keys first")
    return node.party
