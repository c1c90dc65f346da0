"""Figures of many classifiers on held-out records, for the choice of one of them; exact, so not private."""

from __future__ import annotations

from functools import partial
from typing import cast

from flwr.app import RecordDict

from fedfair.node.node import Node
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.messages import pack

HELD_OUT = ("valid", "test")
_MOST = 1000


@exchange("evaluate")
def send_front_counts(node: Node, request: Request) -> RecordDict:
    """Send counts by group of each classifier's decisions on held-out parts, under "SPLIT NUMBER".

    Raises `ValueError` for more classifiers than anybody compares, or for another part than held-out ones.
    """
    front = request.tensors("front")["weights"]
    splits, favourable = cast(list[str], request.options["splits"]), cast(int, request.options["favourable"])
    if len(front) > _MOST or not {*splits} <= {*HELD_OUT}:
        raise ValueError(f"the server asks for {len(front)} classifiers on {', '.join(splits)}: at most {_MOST} are "
                         f"counted, on {' and '.join(HELD_OUT)}")
    name = next(iter(dict(node.model.named_parameters())))
    records = RecordDict()
    for number, weights in enumerate(front if node.clients else ()):
        count = partial(node.evaluate, {name: weights.T.contiguous()}, gradient_norms=False,
                        favourable=favourable if favourable >= 0 else None)
        for split in splits:
            records[f"{split} {number}"] = pack(count(split).tensors())
    return records
