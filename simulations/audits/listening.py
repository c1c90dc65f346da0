"""An attacker who notes what nodes compute, exactly, beside what they send: what remains of a release is its noise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from flwr.app import Message
from torch import Tensor

from fedfair.auditing.canaries import AuditedNode, Canaries
from fedfair.datasets import GroupedDataset
from fedfair.node.node import Batch
from fedfair.protocol.messages import unpack
from fedfair.protocol.round import Round
from simulations.audits.white_box import WatchedGrid


class Counts(NamedTuple):
    """The counts that nodes sent in one exchange, `[nodes, ...]`, and the request."""

    round_: Round
    sent: Tensor


class ListeningNode(AuditedNode):
    """A node of one client that notes by step, beside its exact sums, the exact counts of its batches."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.exact = dict[int, Tensor]()

    def _sample(self, data: GroupedDataset, weights: Any, round_: Round, rows: Tensor) -> Batch:
        """See `AuditedNode`."""
        batch = super()._sample(data, weights, round_, rows)
        if round_.query is not None:
            self.exact[round_.step] = round_.query.counts(batch.probe.norms, batch.groups, len(round_.rates)).cpu()
        return batch


class ListeningGrid(WatchedGrid):
    """Local grid that also records the counts that nodes send."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.counts = list[Counts]()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`."""
        asked = list(messages)
        replies = list(super().send_and_receive(asked))
        if replies and all("counts" in reply.content for reply in replies):
            sent = torch.stack([unpack(reply.content, "counts")["counts"] for reply in replies])
            self.counts.append(Counts(Round.from_json(str(asked[0].content["round"]["json"])), sent))
        return replies


def nothing(parameters: int) -> Canaries:
    """Return canaries at all coordinates, none of which is in the data: what nodes note is then their whole sum."""
    zeros = torch.zeros(parameters, dtype=torch.long)
    return Canaries(torch.arange(parameters), zeros, zeros, zeros.bool(), 1.0)
