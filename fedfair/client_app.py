"""The Flower ClientApp: one node answers for the clients that it hosts, with their contributions added up.

A run may have any number of nodes: of n nodes, node p hosts the clients p, p + n, p + 2n, .... Sums are taken in the
order of client numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import cast

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedfair.fairness.reject_option import RejectOption
from fedfair.gradients.layers import Gradients
from fedfair.mechanisms.noise import NoiseName
from fedfair.node import fairlens_sums as fairlens
from fedfair.node import participant_updates as participants
from fedfair.node.node import ClientError, Contribution, Host
from fedfair.protocol.messages import BEFORE_THRESHOLD, pack, unpack
from fedfair.protocol.round import Round, refuse_distrust
from fedfair.protocol.task import Task
from fedfair.risk import derivatives as curvature
from fedfair.risk.hessian_trace import trace_samples

app = ClientApp()


@lru_cache(maxsize=2)
def _hosts(task: Task, modified: int) -> dict[tuple[int, int], Host]:
    """The hosts made so far for the two latest tasks in this process, by (node, number of nodes)."""
    return {}


def host(task: Task, node: int, nodes: int) -> Host:
    """What node number `node` of `nodes` holds of a task."""
    made = _hosts(task, task.modified)
    if (node, nodes) not in made:
        made[node, nodes] = Host(task.clients_data(node, nodes), task.build_model().to(task.device), task.device)
    return made[node, nodes]


@contextmanager
def hosting(task: Task, hosts: Sequence[Host]) -> Iterator[None]:
    """Let these hosts answer for a task's nodes 0, 1, ... in this process, for a while: how an audit gets in."""
    made = _hosts(task, task.modified)
    before = dict(made)
    made.update({(node, len(hosts)): host for node, host in enumerate(hosts)})
    try:
        yield
    finally:
        made.clear()
        made.update(before)


@lru_cache(maxsize=8)
def _task(text: str) -> Task:
    """The task that a message names."""
    return Task.model_validate_json(text)


def _refuse_change(context: Context, task: Task) -> None:
    """Raise `ClientError` if the file of the user's own is another than at the node's first message: the run was
    planned for the records that it had then.
    """
    first = context.state.config_records.setdefault("file", ConfigRecord({"modified": task.modified}))
    if first["modified"] != task.modified:
        raise ClientError(f"{task.csv} was changed while the run went on, which was planned for the records that it "
                          "had: leave the file alone, and run again")


def _kept_batch(context: Context) -> tuple[str, torch.Tensor] | None:
    """The batch of `Host.kept`, from what Flower keeps for the node wherever its next message is answered."""
    kept = context.state.config_records.get("batch")
    return None if kept is None else (str(kept["label"]), torch.tensor(kept["rows"], dtype=torch.long))


def _keep_batch(context: Context, here: Host) -> None:
    """Leave the batch of `Host.kept` for the node's next message; it never leaves the node."""
    if here.kept is not None:
        context.state["batch"] = ConfigRecord({"label": here.kept[0], "rows": here.kept[1].tolist()})


@lru_cache(maxsize=1024)
def _node_record(node: int, nodes: int, clients: int) -> ConfigRecord:
    """What a node says of itself, made once for all its replies: its number, of how many, with how many clients."""
    return ConfigRecord({"number": node, "of": nodes, "clients": clients})


Handler = Callable[[Message, Host], RecordDict]


def _answer(handler: Handler) -> Callable[[Message, Context], Message]:
    """A Flower handler from one that knows its host; bad data is an answer that names the client, not a crash."""

    @wraps(handler)
    def answer(message: Message, context: Context) -> Message:
        """The handler's answer for this node, or the sentence of what went wrong."""
        node, nodes = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
        try:
            task = _task(str(message.content["task"]["json"]))
            _refuse_change(context, task)
            here = host(task, node, nodes)
            here.kept = _kept_batch(context)
            content = handler(message, here)
            _keep_batch(context, here)
            content["node"] = _node_record(node, nodes, len(here.clients))
        except (ClientError, ValueError, OSError) as error:
            content = RecordDict({"failure": ConfigRecord({"node": node, "reason": str(error)})})
        return Message(content, reply_to=message)

    return answer


@app.query("sizes")
@_answer
def sizes(message: Message, here: Host) -> RecordDict:
    """How many training and validation records each client has of each group, `[m, K]`, rounded as the task says:
    public by assumption.
    """
    task = _task(str(message.content["task"]["json"]))
    told = {part: task.public_sizes(here.clients.group_sizes(part)) for part in ("train", "valid")}
    data = task.data().train
    return RecordDict({"sizes": pack(told),
                       "groups": ConfigRecord({"names": list(data.names), "labels": list(data.labels)})})


@app.query("counts")
@_answer
def counts(message: Message, here: Host) -> RecordDict:
    """The noisy counts of the round's query."""
    return _content(here.counts(*_weights_and_round(message, here)))


@app.query("scores")
@_answer
def scores(message: Message, here: Host) -> RecordDict:
    """How many validation records of each group have which score, with the clients' shares of the noise."""
    weights, options = _on_device(message, "weights", here), message.content.config_records["options"]
    favourable, deviation = cast(int, options["favourable"]), cast(float, options["deviation"])
    noise = cast(NoiseName, options["noise"])
    seed = _task(str(message.content["task"]["json"])).seed if options["seeded"] else None
    return _content(here.scores(weights, favourable, noise, deviation, seed))


@app.train("gradient_sum")
@_answer
def gradient_sum(message: Message, here: Host) -> RecordDict:
    """The clipped gradient sum of the round's batch, with the counts that it asks for."""
    return _content(here.gradient_sum(*_weights_and_round(message, here)))


@app.train("update_sum")
@_answer
def update_sum(message: Message, here: Host) -> RecordDict:
    """The sum of the clipped updates of the clients that the round draws, with the counts that it asks for."""
    return _content(participants.update_sum(here, *_weights_and_round(message, here)))


@app.train("batch_sums")
@_answer
def batch_sums(message: Message, here: Host) -> RecordDict:
    """Sums over the round's batch that FairLens's penalty is made of, without noise."""
    found = fairlens.batch_sums(here, *_weights_and_round(message, here))
    return RecordDict({name: pack(sums) for name, sums in found._asdict().items()} if found else {})


@app.train("penalty_gradient")
@_answer
def penalty_gradient(message: Message, here: Host) -> RecordDict:
    """The node's part of the gradient of FairLens's penalty, without noise."""
    options = cast(dict[str, list[float]], message.content.config_records["options"])
    distortion, difference = (_on_device(message, name, here) for name in ("distortion", "difference"))
    penalty = fairlens.Penalty(distortion, difference, tuple(options["loss-weights"]),
                               tuple(options["probability-weights"]))
    return RecordDict({"sums": pack(fairlens.penalty_gradient(here, *_weights_and_round(message, here), penalty))})


@app.train("shifted_gradient_sum")
@_answer
def shifted_gradient_sum(message: Message, here: Host) -> RecordDict:
    """The sum of the batch's gradients, each shifted by FairLens's penalty and then clipped, without noise."""
    shift = _on_device(message, "shift", here)
    return RecordDict({"sums": pack(fairlens.shifted_gradient_sum(here, *_weights_and_round(message, here), shift))})


@app.train("local_epoch")
@_answer
def local_epoch(message: Message, here: Host) -> RecordDict:
    """The locally trained weights, each times its client's share in the average."""
    return _content(here.local_epochs(*_weights_and_round(message, here)))


@app.evaluate("groups")
@_answer
def evaluate(message: Message, here: Host) -> RecordDict:
    """Confusion counts, losses and gradient norms by group, for the parts in `splits`; not private.

    With a `threshold` these are of its decisions; those of the model are added as "SPLIT before threshold".
    """
    weights, options = _on_device(message, "weights", here), message.content.config_records["options"]
    rule = RejectOption.from_json(str(options["threshold"])) if options["threshold"] else None
    content = RecordDict()
    for split in cast(list[str], options["splits"]) if here.clients else []:
        content[split] = pack(here.evaluate(weights, split, bool(options["gradient-norms"]), rule).tensors())
        if rule:
            content[f"{split} {BEFORE_THRESHOLD}"] = pack(here.evaluate(weights, split, False).tensors())
    return content


@app.query("clipping_effect")
@_answer
def clipping_effect(message: Message, here: Host) -> RecordDict:
    """A batch's gradient with and without clipping, and the groups' losses and gradients over all records, exact; not
    private.
    """
    weights, round_ = _weights_and_round(message, here)
    refuse_distrust(round_, "risk terms")
    if not here.clients:
        return RecordDict({"sums": pack({})})
    found, data = curvature.clipping_effect(here, weights, round_), here.training_records(weights)
    found["records"] = torch.bincount(data.group, minlength=len(data.names))
    found["losses"], found["gradients"] = curvature.losses_and_gradients(here.model, data)
    return RecordDict({"sums": pack(found)})


@app.query("hessian_products")
@_answer
def hessian_products(message: Message, here: Host) -> RecordDict:
    """Each group's Hessian, over a sample of its records, times the vectors that the message holds for the group."""
    (weights, round_), asked = _weights_and_round(message, here), unpack(message.content, "vectors")
    refuse_distrust(round_, "risk terms")
    if not here.clients:
        return RecordDict({"products": pack({})})
    data = here.training_records(weights)
    rates, seed = _sampling(message, round_)
    found = {}
    for group, rows in curvature.samples(data, rates, seed, round_.step, "curvature"):
        found[f"{group}"] = curvature.hessian_products(here.model, data, rows, asked[f"{group}"])
        found[f"{group}/records"] = torch.tensor(len(rows))
    return RecordDict({"products": pack(found)})


@app.query("traces")
@_answer
def traces(message: Message, here: Host) -> RecordDict:
    """Samples of the trace of each group's Hessian: their sum, the sum of their squares, and their number, `[K]`."""
    weights, round_ = _weights_and_round(message, here)
    refuse_distrust(round_, "risk terms")
    if not here.clients:
        return RecordDict({"traces": pack({})})
    data = here.training_records(weights)
    rates, seed = _sampling(message, round_)
    found = [trace_samples(here.model, data, rows, seed, round_.step).double()
             for _, rows in curvature.samples(data, rates, seed, round_.step, "trace")]
    return RecordDict({"traces": pack({"sums": torch.stack([own.sum() for own in found]),
                                       "squares": torch.stack([own.square().sum() for own in found]),
                                       "records": torch.tensor([len(own) for own in found])})})


def _sampling(message: Message, round_: Round) -> tuple[list[float], int]:
    """The groups' sampling rates that a message names, and the seed of the run, which has one."""
    assert round_.seed is not None
    return cast(list[float], message.content.config_records["options"]["rates"]), round_.seed


def _on_device(message: Message, name: str, here: Host) -> Gradients:
    """The tensors of a message's record, where the node computes."""
    return {key: value.to(here.device) for key, value in unpack(message.content, name).items()}


def _weights_and_round(message: Message, here: Host) -> tuple[Gradients, Round]:
    """The weights that a message carries, and the round that it describes."""
    return _on_device(message, "weights", here), Round.from_json(str(message.content["round"]["json"]))


def _content(contribution: Contribution) -> RecordDict:
    """A contribution as it travels."""
    content = RecordDict({"sums": pack(contribution.sums)})
    if contribution.counts is not None:
        content["counts"] = pack({"counts": contribution.counts})
    return content
