"""The traces of the groups' Hessians, by Hutchinson's estimator (1990), one layer at a time.

A layer called with inputs a has outputs J p that are linear in its parameters p. In the Hessian of an example's loss,
p has the diagonal block J' H J, where H are the second derivatives of the loss by the outputs. For a vector s of random
signs, the mean of `(J s)' H (J s)` is the trace of the block. The other blocks do not contribute to the trace and are
not computed; with signs for all parameters at once they would add noise. Where a layer multiplies one row of inputs by
a matrix, `J J' = (|a|^2 + 1) I`. Then J s can be replaced by `sqrt(|a|^2 + 1) t`, with a sign t for each output instead
of each parameter, which varies less. Each example has its own signs, so its sample is independent of the others; a
whole batch takes two backward passes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset
from fedfair.gradients.layers import shaped
from fedfair.gradients.recorder import ForwardCall
from fedfair.gradients.second_order import recorded
from fedfair.mechanisms.randomness import signs
from fedfair.models.published import loss

_NUMBERS = 2**22  # the most signs in memory at a time


def trace_samples(model: nn.Module, data: GroupedDataset, rows: Tensor, noise_key: int | str, step: int) -> Tensor:
    """Return an unbiased sample of the trace of the loss's Hessian for each of some rows: `[m]`, independent.

    Each is a function of (noise key, step) and the record. Raises `ValueError` for a model with a layer that is not in
    `fedfair.gradients.layers.LAYERS`, or with a layer or a parameter that is used twice.
    """
    first = next(model.parameters())
    samples, device = [first.new_zeros(0, device="cpu")], first.device
    _, calls = recorded(model, data.features(slice(1), device))
    widths = [_width(call) for call in calls]
    for portion in data.portions(rows):
        for part in torch.split(portion, max(1, _NUMBERS // sum(widths))):
            output, calls = recorded(model, data.features(part, device))
            drawn = signs(noise_key, "rademacher", step, data.records[part], sum(widths), output.dtype).to(device)
            losses = loss(output, data.y[part].to(device))
            samples.append(_samples(losses, calls, torch.split(drawn, widths, dim=1)).cpu())
    return torch.cat(samples)


def _samples(losses: Tensor, calls: list[ForwardCall], drawn: tuple[Tensor, ...]) -> Tensor:
    """Return `sum over layers of (J s)' H (J s)` for each example, `[B]`, from each layer's signs `[B, width]`."""
    total, outputs = torch.zeros_like(losses), [call.output for call in calls]
    slopes = torch.autograd.grad(losses.sum(), outputs, create_graph=True)
    for call, slope, layer_signs in zip(calls, slopes, drawn, strict=True):
        along = _along(call, layer_signs)
        (curved,) = torch.autograd.grad((slope * along).sum(), call.output, retain_graph=True, materialize_grads=True)
        total += (along * curved).flatten(1).sum(1)
    return total


def _width(call: ForwardCall) -> int:
    """Return how many signs an example needs for a layer."""
    if _one_row(call):
        return call.output.shape[1]
    return sum(parameter.numel() for parameter in _trained(call).values())


@torch.no_grad()
def _along(call: ForwardCall, drawn: Tensor) -> Tensor:
    """Return `J s` for each example, of the outputs' shape, from its signs `[B, width]`."""
    if _one_row(call):
        trained = _trained(call)
        rows = call.inputs.square().sum(1, keepdim=True) if "weight" in trained else torch.zeros_like(drawn[:, :1])
        return drawn * (rows + ("bias" in trained)).sqrt()
    fixed = {name: torch.zeros_like(value) for name, value in call.layer.named_parameters()}
    unused = getattr(call.layer, "padding_idx", None)

    def one(example_signs: Tensor, inputs: Tensor) -> Tensor:
        """Return the layer's output for one example, with its signs in place of the parameters."""
        directions = shaped(example_signs, _trained(call))
        if unused is not None:
            row = torch.tensor(unused, device=example_signs.device)
            directions["weight"] = directions["weight"].index_fill(0, row, 0)
        output: Tensor = torch.func.functional_call(call.layer, fixed | directions, (inputs[None],))
        return output[0]

    along: Tensor = torch.func.vmap(one)(drawn, call.inputs)
    return along


def _one_row(call: ForwardCall) -> bool:
    """Return whether a layer multiplies one row of inputs for each example by a matrix."""
    return isinstance(call.layer, nn.Linear) and call.inputs.dim() == 2


def _trained(call: ForwardCall) -> dict[str, Tensor]:
    """Return a layer's trained parameters, by the names that they have in the layer."""
    return {name: value for name, value in call.layer.named_parameters() if value.requires_grad}
