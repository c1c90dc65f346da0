"""FairLens on a node: sums over a batch for a penalty on it. Tran et al. 2021, as in Esipova et al. 2023, Algorithm 4.

The penalty's terms are built from means over the whole batch, whose records may lie on several nodes, so a step takes
three exchanges: sums of the batch (`batch_sums`), the penalty's gradient r given those (`penalty_gradient`), and the
sum of clipped g_i + r (`shifted_gradient_sum`). All of them leave a node without noise, which only central trust
allows. The server adds up the results over nodes; a node without clients adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import torch
from flwr.app import RecordDict
from torch import Tensor
from torch.nn import functional as F

from fedfair.gradients.layer_gradients import Gradients
from fedfair.gradients.layer_probe import Probe, trained_parameters
from fedfair.gradients.passes import differentiable
from fedfair.models.published import loss
from fedfair.node.node import Node
from fedfair.protocol.exchange import Request, exchange
from fedfair.protocol.messages import pack
from fedfair.protocol.round import Round, refuse_distrust


class BatchSums(NamedTuple):
    """Sums over the records of a batch.

    `groups` holds by group the number of records (`sizes` `[2]`) and the sum of the predicted probabilities of class 1
    (`probabilities` `[2]`); `first` and `second` are the gradient sums of the two groups, `clipped` the sum of all
    gradients clipped to the clip norm.
    """

    groups: dict[str, Tensor]
    first: Gradients
    second: Gradients
    clipped: Gradients


class Penalty(NamedTuple):
    """The facts about the whole batch that a node needs for its part of the penalty's gradient.

    That part is the gradient of

        sum_i loss_weights[a_i] <g_i, distortion> + (c_i - 1) <g_i, difference> + probability_weights[a_i] p_i

    with everything constant but the gradients g_i, the clipping coefficients c_i, and the probabilities p_i.
    """

    distortion: Mapping[str, Tensor]
    difference: Mapping[str, Tensor]
    loss_weights: tuple[float, ...]
    probability_weights: tuple[float, ...]


def batch_sums(node: Node, weights: Mapping[str, Tensor], round_: Round) -> BatchSums | None:
    """Return the node's part of the batch's sums, without noise; raise `ValueError` unless trust is central."""
    refuse_distrust(round_, "FairLens")
    if not node.clients:
        return None
    assert round_.rule is not None
    batch = node.batch(weights, round_)
    members = F.one_hot(batch.groups, 2).to(batch.probe.norms.dtype)
    with torch.no_grad():
        probabilities = node.model(batch.x).softmax(1)[:, 1]
    first, second = (batch.probe.weighted_sum(column) for column in members.unbind(1))
    clipped = batch.probe.weighted_sum(round_.rule.coefficients(batch.probe.norms, batch.groups))
    return BatchSums({"sizes": members.sum(0), "probabilities": probabilities @ members}, first, second, clipped)


def penalty_gradient(node: Node, weights: Mapping[str, Tensor], round_: Round, penalty: Penalty) -> Gradients:
    """Return the node's part of the penalty's gradient, without noise; raise `ValueError` unless trust is central."""
    refuse_distrust(round_, "FairLens")
    if not node.clients:
        return {}
    assert round_.rule is not None
    batch = node.batch(weights, round_)
    trained, _ = trained_parameters(node.model)
    if len(batch.x) == 0:
        return {name: torch.zeros_like(parameter) for name, parameter in trained.items()}
    probe = differentiable(node.model, loss, batch.x, batch.y)
    # A gradient of zero is not clipped, but its norm has no derivative: take a norm far below the clip norm.
    norms = probe.square_norms().clamp(min=1e-12).sqrt()
    coefficients = round_.rule.coefficients(norms, batch.groups)
    loss_weights, probability_weights = (norms.new_tensor(by_group)[batch.groups]
                                         for by_group in (penalty.loss_weights, penalty.probability_weights))
    terms = (loss_weights * probe.dot(penalty.distortion) + (coefficients - 1) * probe.dot(penalty.difference)
             + probability_weights * probe.output.softmax(1)[:, 1])
    gradients = torch.autograd.grad(terms.sum(), list(trained.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(trained, gradients, strict=True))


def shifted_gradient_sum(node: Node, weights: Mapping[str, Tensor], round_: Round, shift: Mapping[str, Tensor]
                         ) -> Gradients:
    """Return the node's part of the sum of clipped `g_i + shift`, without noise.

    Raises `ValueError` unless trust is central.
    """
    refuse_distrust(round_, "FairLens")
    if not node.clients:
        return {}
    assert round_.rule is not None
    batch = node.batch(weights, round_)
    shifted = Shifted(batch.probe, shift)
    return shifted.weighted_sum(round_.rule.coefficients(shifted.norms, batch.groups))


class Shifted:
    """The gradients `g_i + r` of a batch, from a probe of the `g_i` and one shift r; `norms` is `[B]`."""

    def __init__(self, probe: Probe, shift: Mapping[str, Tensor]) -> None:
        length = sum((value.square().sum() for value in shift.values()), torch.zeros(()))
        self.norms = (probe.norms.square() + 2 * probe.dot(shift) + length).clamp(min=0).sqrt()
        self._probe, self._shift = probe, shift

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """Return `sum_i coefficients[i] (g_i + r)` by parameter name, for coefficients `[B]`."""
        total = coefficients.sum()
        return {name: value + total * self._shift[name]
                for name, value in self._probe.weighted_sum(coefficients).items()}


@exchange("train")
def send_batch_sums(node: Node, request: Request) -> RecordDict:
    """Send the sums over the round's batch from which the penalty follows, without noise."""
    sums = batch_sums(node, request.weights, request.round)
    return RecordDict({name: pack(values) for name, values in sums._asdict().items()} if sums else {})


@exchange("train")
def send_penalty_gradient(node: Node, request: Request) -> RecordDict:
    """Send the node's part of the penalty's gradient, without noise."""
    options = cast(dict[str, list[float]], request.options)
    penalty = Penalty(request.tensors("distortion"), request.tensors("difference"), tuple(options["loss-weights"]),
                      tuple(options["probability-weights"]))
    return RecordDict({"sums": pack(penalty_gradient(node, request.weights, request.round, penalty))})


@exchange("train")
def send_shifted_gradient_sum(node: Node, request: Request) -> RecordDict:
    """Send the sum of the batch's gradients, each shifted by the penalty and then clipped, without noise."""
    shift = request.tensors("shift")
    return RecordDict({"sums": pack(shifted_gradient_sum(node, request.weights, request.round, shift))})
