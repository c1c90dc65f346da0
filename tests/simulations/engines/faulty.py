"""Client app that fails in every way, until a file says that it has failed often enough."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from fedfair import client_app
from fedfair.node.exchanges import send_sizes
from fedfair.protocol.messages import pack, unpack

app = ClientApp()


def calls(path: Path) -> int:
    """Return how often a handler was called on the file `path`."""
    return len(path.read_text()) if path.exists() else 0


@app.query("fail")
def fail(message: Message, context: Context) -> Message:
    """Fail in the way that the message asks for, a number of times; then answer."""
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


@app.train("spoil")
def spoil(message: Message, context: Context) -> Message:
    """Return a sum that node 1 spoils in the way that the message asks for."""
    asked, node = message.content.config_records["asked"], int(context.node_config["partition-id"])
    ways = {"nan": torch.tensor([1.0, math.nan]), "shape": torch.ones(3), "fine": torch.ones(2)}
    content = RecordDict({"sums": pack({"w": ways[str(asked["way"])] if node == 1 else torch.ones(2)}),
                          "node": ConfigRecord({"number": node, "of": 2, "clients": 1})})
    return Message(content, reply_to=message)


def leaving(message: Message, context: Context) -> Message:
    """Answer as the program's client app, except that node 1 dies once it has reported its sizes."""
    if message.content["exchange"]["name"] != send_sizes.name and context.node_config["partition-id"] == 1:
        os._exit(1)
    return client_app.app(message, context)


def left(message: Message, context: Context) -> Message:
    """Do the same without a death: reply with Flower's error."""
    if message.content["exchange"]["name"] != send_sizes.name and context.node_config["partition-id"] == 1:
        return Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
    return client_app.app(message, context)


@app.query("count")
def count(message: Message, context: Context) -> Message:
    """Return how often the node was asked before, from its state."""
    asked = int(context.state.config_records.get("asked", ConfigRecord({"times": 0}))["times"])  # type: ignore[arg-type]
    context.state["asked"] = ConfigRecord({"times": asked + 1})
    return Message(RecordDict({"asked": ConfigRecord({"times": asked})}), reply_to=message)


@app.train("double")
def double(message: Message, context: Context) -> Message:
    """Return twice the weights, and their addresses in memory."""
    weights = unpack(message.content, "weights")
    content = RecordDict({"sums": pack({name: 2 * value for name, value in weights.items()}), "where": ConfigRecord({
        "pid": os.getpid(), "threads": torch.get_num_threads(), "address": weights["w"].data_ptr()})})
    return Message(content, reply_to=message)
