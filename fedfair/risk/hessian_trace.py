"""The traces of the groups' Hessians, by Hutchinson's estimator (1990), one layer at a time.

A layer called with inputs a has outputs J p that are linear in its parameters p. In the Hessian of an example's loss,
p has the diagonal block J' H J, with H the loss's second derivatives by the outputs; for a vector s of random signs
the mean of `(J s)' H (J s)` is the trace of the block. The other blocks have no part in the trace, and are never met:
along signs for all parameters at once they are noise. Where a layer multiplies one row of inputs by a matrix,
`J J' = (|a|^2 + 1) I`, so that `sqrt(|a|^2 + 1) t` serves as well, with a sign t for each output instead of each
parameter, and varies less. Every example has signs of its own: its sample is independent of the others, and all of a
batch take two backward passes together.
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

_NUMBERS = 2**22  # signs that are held together


def trace_samples(model: nn.Module, data: GroupedDataset, rows: Tensor, seed: int, step: int) -> Tensor:
    """For each of some rows `[m]` an unbiased sample of the trace of its loss's Hessian: `[m]`, independent.

    A function of (seed, step) and the record. Raises `ValueError` for a model with layers that are not in
    `fedfair.gradients.layers.LAYERS`, or that uses one, or one's parameter, twice.
    """
    first = next(model.parameters())
    samples, device = [first.new_zeros(0, device="cpu")], first.device
    _, calls = recorded(model, data.features(slice(1), device))
    widths = [_width(call) for call in calls]
    for portion in data.portions(rows) if len(rows) else ():
        for part in torch.split(portion, max(1, _NUMBERS // sum(widths))):
            output, calls = recorded(model, data.features(part, device))
            drawn = signs(seed, "rademacher", step, data.records[part], sum(widths), output.dtype).to(device)
            losses = loss(output, data.y[part].to(device))
            samples.append(_samples(losses, calls, torch.split(drawn, widths, dim=1)).cpu())
    return torch.cat(samples)


def _samples(losses: Tensor, calls: list[ForwardCall], drawn: tuple[Tensor, ...]) -> Tensor:
    """`sum over layers of (J s)' H (J s)` for each example `[B]`, with each layer's signs `[B, width]`."""
    total, outputs = torch.zeros_like(losses), [call.output for call in calls]
    slopes = torch.autograd.grad(losses.sum(), outputs, create_graph=True)
    for call, slope, own in zip(calls, slopes, drawn, strict=True):
        along = _along(call, own)
        (curved,) = torch.autograd.grad((slope * along).sum(), call.output, retain_graph=True, materialize_grads=True)
        total += (along * curved).flatten(1).sum(1)
    return total


def _width(call: ForwardCall) -> int:
    """How many signs an example needs for a layer."""
    if _one_row(call):
        return call.output.shape[1]
    return sum(parameter.numel() for parameter in _trained(call).values())


@torch.no_grad()
def _along(call: ForwardCall, drawn: Tensor) -> Tensor:
    """`J s` for each example, of the outputs' shape, from its signs `[B, width]`."""
    if _one_row(call):
        trained = _trained(call)
        rows = call.inputs.square().sum(1, keepdim=True) if "weight" in trained else torch.zeros_like(drawn[:, :1])
        return drawn * (rows + ("bias" in trained)).sqrt()
    fixed = {own: torch.zeros_like(value) for own, value in call.layer.named_parameters()}
    unused = getattr(call.layer, "padding_idx", None)

    def one(own: Tensor, inputs: Tensor) -> Tensor:
        """The layer's output for one example, with its signs in place of the parameters."""
        directions = shaped(own, _trained(call))
        if unused is not None:
            directions["weight"] = directions["weight"].index_fill(0, torch.tensor(unused, device=own.device), 0)
        output: Tensor = torch.func.functional_call(call.layer, fixed | directions, (inputs[None],))
        return output[0]

    found: Tensor = torch.func.vmap(one)(drawn, call.inputs)
    return found


def _one_row(call: ForwardCall) -> bool:
    """Whether a layer multiplies one row of inputs an example by a matrix."""
    return isinstance(call.layer, nn.Linear) and call.inputs.dim() == 2


def _trained(call: ForwardCall) -> dict[str, Tensor]:
    """A layer's parameters that are trained, by its own names."""
    return {own: value for own, value in call.layer.named_parameters() if value.requires_grad}
