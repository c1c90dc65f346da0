"""The server's part of a round whose sum is securely aggregated: four exchanges, of which only the sum is learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from torch import Tensor

from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.clipping import sensitivity
from fedfair.mechanisms.integer_sums import from_steps, refuse_misfit
from fedfair.mechanisms.noise import MOST_STEPS
from fedfair.node.masked_sums import send_key_shares, send_keys, send_unmasking, share_deviation
from fedfair.node.node import ClientError
from fedfair.protocol import messages
from fedfair.protocol.exchange import Exchange
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task
from fedfair.secure_sums.masks import BYTES, Words, opened_sum
from strategies.server.population import Population
from strategies.server.replies.reply_checks import SAME, UNCHANGED, check_tensors, config, sender
from strategies.server.replies.requests import answers, numbering
from strategies.server.training import Training

_LONGEST = 1024  # bytes of a key, a share or a sealed pair of shares


class SecureSum:
    """One secure sum over the nodes that hold clients (`fedfair.secure_sums.party` says how).

    Args:
        grid: The nodes.
        task: Data, model and seed of the run.
        training: Settings of the training.
        population: Public numbers of records by client and group.
        plan: The round.
        like: Tensors of the sums' names and shapes, in the order in which nodes add them up.
        units: Number of records (or participants) of each client, whose sums the round's rule bounds.

    Raises:
        ValueError: For sums that whole steps of the noise's grid do not hold.
    """

    def __init__(self, grid: Grid, task: Task, training: Training, population: Population, plan: Round,
                 like: Mapping[str, Tensor], units: Sequence[int]) -> None:
        self._grid, self._task, self._training, self._population = grid, task, training, population
        self._plan, self._like, self._name = plan, like, token_hex(16)
        self._numbers = sum(map(Tensor.numel, like.values()))
        self._nodes: list[int] = []  # the parties, by place
        self._masking_keys: list[bytes] = []
        self._senders: list[int] = []  # places of those who dealt shares
        self._masked: dict[int, Words] = {}
        self._threshold = 0
        self._check_room(units)

    def requests(self, exchange: Exchange, weights: ArrayRecord, **options: Any) -> list[Message]:
        """Collect masked sums, and return the requests whose answers open their total.

        Args:
            exchange: Asks for a node's sums under masks.
            weights: Weights of the model by name.
            options: What the request says besides.

        Raises:
            ClientError: If too many nodes are lost, or one sends what no party sends; then nothing was released.
        """
        sealing = self._collect_keys()
        dealt = self._ask(send_key_shares, {place: {"threshold": self._threshold, "sealing": sealing,
                                                    "masking": self._masking_keys} for place in range(len(sealing))})
        sealed = {place: _texts(reply, "shares", "sealed", len(self._nodes)) for place, reply in dealt.items()}
        self._senders = self._enough(sealed)
        parts = {place: {"senders": self._senders, "sealed": [sealed[other][place] for other in self._senders],
                         **options} for place in self._senders}
        masked = self._ask(exchange, parts, round_=self._plan, weights=weights)
        self._masked = {place: self._words(reply) for place, reply in masked.items()}
        survivors = self._enough(self._masked)
        return self._requests(send_unmasking, {place: {"survivors": survivors} for place in survivors})

    def total(self, replies: Sequence[Message]) -> Gradients:
        """Return the sums over all nodes whose masked sums arrived.

        Args:
            replies: Answers to `requests`, checked.

        Raises:
            ClientError: For too few answers, or a total that no parties can have.
        """
        shares = {place: _texts(reply, "unmasking", "shares", len(self._senders), BYTES)
                  for place, reply in self._by_place(replies).items()}
        self._enough(shares)
        try:
            steps = opened_sum(self._masked, self._masking_keys, self._senders, shares, self._threshold)
        except ValueError as error:
            raise ClientError(f"the secure sum cannot be opened: {error}: {UNCHANGED}; {SAME}") from None
        if not bool((np.abs(steps.astype(np.float64)) < MOST_STEPS).all()):
            raise ClientError(f"the secure sum is larger than any sum over the records: {UNCHANGED}; one of the nodes "
                              f"sent other numbers or other shares than it should, which masks hide; {SAME}")
        return from_steps(steps, share_deviation(self._plan), self._like)

    def _collect_keys(self) -> list[bytes]:
        """Ask for public keys; who answers is a party, and the keys for masks are kept. Return those to seal."""
        holders = self._population.holders
        self._nodes = [node for node, clients in holders.items() if clients]
        asked = self._ask(send_keys, {place: {} for place in range(len(self._nodes))})
        least = len(self._nodes) - _most_lost(list(map(len, holders.values())), self._training.dropouts)
        self._nodes = [self._nodes[place] for place in asked]
        self._threshold = max(len(asked) // 2 + 1, least)
        keys = [_texts(reply, "keys", name, 1, BYTES)[0] for name in ("sealing", "masking") for reply in asked.values()]
        self._masking_keys = keys[len(asked):]
        return keys[:len(asked)]

    def _ask(self, exchange: Exchange, parts: Mapping[int, Mapping[str, Any]], **common: Any) -> dict[int, Message]:
        """Send each party its own request, and return the answers by place."""
        asked, within = self._requests(exchange, parts, **common), self._training.answer_timeout
        population = self._population
        return self._by_place(answers(self._grid.send_and_receive(asked, timeout=within), len(population.sizes),
                                      self._training.dropouts, asked, population.holders, within))

    def _requests(self, exchange: Exchange, parts: Mapping[int, Mapping[str, Any]], **common: Any) -> list[Message]:
        """Return each party's own request."""
        asked = [message for place, options in parts.items()
                 for message in messages.requests(exchange.name, exchange.category, [self._nodes[place]], self._task,
                                                  sum=self._name, **common, **options)]
        return numbering(asked, self._population, self._task)

    def _by_place(self, replies: Sequence[Message]) -> dict[int, Message]:
        """Return replies by the place of their party."""
        return dict(sorted((self._nodes.index(reply.metadata.src_node_id), reply) for reply in replies))

    def _enough(self, parties: Mapping[int, object]) -> list[int]:
        """Return the places of those who answered; raise `ClientError` if they are too few to open a mask."""
        if len(parties) < self._threshold:
            raise ClientError(f"only {len(parties)} nodes are left, but the secure sum needs {self._threshold} of "
                              f"{len(self._nodes)}: {UNCHANGED}, and nothing was learned; run again with all of them")
        return sorted(parties)

    def _words(self, reply: Message) -> Words:
        """Return the masked integers of a reply."""
        who, record = sender(reply), reply.content.array_records.get("masked", ArrayRecord())
        like = {"numbers": torch.empty(self._numbers, dtype=torch.int64, device="meta")}
        return check_tensors(who, record, "masked sums", like)["numbers"].numpy().view(np.uint64)

    def _check_room(self, units: Sequence[int]) -> None:
        """Raise `ValueError` for sums that whole steps of the noise's grid do not hold."""
        rule = self._plan.rule
        assert rule is not None
        most = max(sum(units[client] for client in clients) for clients in self._population.holders.values())
        refuse_misfit(share_deviation(self._plan), sensitivity(rule, len(self._plan.rates)), self._numbers, sum(units),
                      most, len(units))


def _most_lost(clients: Sequence[int], dropouts: int) -> int:
    """Return how many nodes can be lost if `dropouts` clients are; `clients` are the numbers that nodes hold."""
    lost = 0
    for held in sorted(filter(None, clients)):
        dropouts -= held
        lost += dropouts >= 0
    return lost


def _texts(reply: Message, record: str, name: str, count: int, length: int | None = None) -> list[bytes]:
    """Return `count` byte strings of a reply; raise `ClientError` for others."""
    sent = config(reply, record).get(name)
    texts = sent if isinstance(sent, list) else [sent]
    if len(texts) == count and all(
            isinstance(text, bytes) and len(text) in ((length,) if length else range(_LONGEST)) for text in texts):
        return cast(list[bytes], texts)
    raise ClientError(f"{sender(reply)} sent no {record} for a secure sum, which it was asked for: {UNCHANGED}; {SAME}")
