"""Private training inside the client of an existing Flower app: one local epoch by a round's plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.gradients.layers import memory_format
from fedfair.gradients.probe import trained_parameters
from fedfair.node.node import Node
from fedfair.protocol.round import Round


def train_privately(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, plan: str) -> dict[str, Any]:
    """Train a classifier in place for one local epoch on all of a client's records, with cross entropy.

    Batches and noise come from the operating system. Only the weights and the returned values may leave the client.
    Nothing else is protected, a loss least of all. Parameters that do not require a gradient stay as they are.

    Args:
        model: The classifier, in float32 or float64, which gives logits `[n, classes]`.
        x: Features of all of the client's records, `[n, ...]`.
        y: Labels by number, `[n]`.
        group: Groups by number, `[n]`.
        plan: Clip rule, noise and batch size, as `strategies.server.existing_app.PrivateTraining` put them into the
            message.

    Returns:
        A dictionary for the reply: the number of the client's records, which is taken as public, the number of the
        plan's round, and noisy counts.

    Raises:
        ValueError: For a plan without local training, a model that mixes examples, one in less than float32, or one
            that is not in float64 where noise is discrete.
        fedfair.node.node.ClientError: For a gradient that is not finite, if the plan clips nothing. A plan that clips
            leaves such records out.
    """
    round_ = Round.from_json(plan)
    if round_.local is None or round_.seed is not None:
        raise ValueError("this plan is not one for local training with randomness of the operating system: take "
                         "strategies.server.existing_app.PrivateTraining at the server")
    names = tuple(map(str, range(len(round_.rates))))
    data = GroupedDataset(x.cpu(), y.cpu(), group.long().cpu(), names, int(y.max()) + 1 if len(y) else 1)
    empty = data.take(torch.empty(0, dtype=torch.long))
    parameters, _ = trained_parameters(model)
    coarse = {str(parameter.dtype) for parameter in parameters.values()} - {"torch.float32", "torch.float64"}
    if coarse:
        raise ValueError(f"the model is in {', '.join(sorted(coarse))}, in which a clipped gradient can exceed its "
                         "bound by a percent: use model.float(), and features in float32")
    if round_.noise == "discrete" and any(parameter.dtype != torch.float64 for parameter in parameters.values()):
        raise ValueError('noise is "discrete", but the model is not in float64, in which alone sums are exact enough '
                         "for it: use model.double(), and features in float64")
    weights = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    node = Node({0: Parts(data, empty, empty)}, model, str(next(model.parameters()).device))
    trained = node.local_epochs(weights, replace(round_, local=replace(round_.local, sizes=(len(x),))))
    for name, parameter in parameters.items():
        parameter.data = trained.sums[name].detach().to(memory_format=memory_format(parameter))
    counts = {} if trained.counts is None else {"counts": trained.counts.flatten().tolist(),
                                                "shape": list(trained.counts.shape)}
    return {"size": len(x), "step": round_.step, **counts}
