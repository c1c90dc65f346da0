"""The size of a reply is judged by that of its request, also where a text in it is empty."""

from __future__ import annotations

import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import zeros

from fedfair.node.node import ClientError
from fedfair.protocol.messages import pack
from strategies.server.replies import reply_checks


class Sent:
    """A message of records, as far as its size is judged."""

    def __init__(self, **records: ArrayRecord | ConfigRecord) -> None:
        self.content = RecordDict(dict(records))
        self.metadata = type("Metadata", (), {"src_node_id": 7})


def test_a_reply_may_be_large_if_its_request_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_checks, "_MOST_BYTES", 1000)
    reply = Sent(sums=pack({"a": zeros(1000)}))
    reply_checks.check_size(reply, Sent(options=ConfigRecord({"threshold": ""}),  # type: ignore[arg-type]
                                        weights=pack({"a": zeros(1000)})))
    with pytest.raises(ClientError, match=r"node 7 sent 4,\d+ bytes, but at most"):
        reply_checks.check_size(reply, Sent(options=ConfigRecord({"threshold": ""})))  # type: ignore[arg-type]
