"""A client app that fails in every way, until a file says that it has failed often enough."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedfair.messages import pack, unpack

app = ClientApp()


def calls(path: Path) -> int:
    """How often a handler was called on the file `path`."""
    return len(path.read_text()) if path.exists() else 0


@app.query("fail")
def fail(message: Message, context: Context) -> Message:
    """Fails in the way that the message asks for, a number of times; then answers."""
    asked = message.content.config_records["asked"]
    path = Path(str(asked["file"])).with_suffix(f".{context.node_config['partition-id']}")
    with path.open("a") as file:
        file.write("x")
    if calls(path) <= int(asked["times"]):  # type: ignore[arg-type]
        if asked["way"] == "die":
            os._exit(1)
        if asked["way"] == "hang":
            time.sleep(1000)
        raise KeyError("something was not there")
    return Message(RecordDict({"answer": ConfigRecord({"node": context.node_config["partition-id"]})}),
                   reply_to=message)


@app.train("double")
def double(message: Message, context: Context) -> Message:
    """Twice the weights, and where they lie in memory."""
    weights = unpack(message.content, "weights")
    content = RecordDict({"sums": pack({name: 2 * value for name, value in weights.items()}), "where": ConfigRecord({
        "pid": os.getpid(), "threads": torch.get_num_threads(), "address": weights["w"].data_ptr()})})
    return Message(content, reply_to=message)
