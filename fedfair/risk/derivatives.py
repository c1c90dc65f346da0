"""The groups' losses over the records of a node, and their first and second derivatives: the ingredients of risk terms.

Vectors are flat, `[P]`: the trained parameters in the model's order. A Hessian is never materialised; two backward
passes multiply it by a vector (Pearlmutter 1994). Nothing in this module is private: the results go to a server that is
trusted with exact sums.

The traces of the groups' Hessians, by Hutchinson's estimator (1990), one layer at a time.

A layer called with inputs a has outputs J p that are linear in its parameters p. In the Hessian of an example's loss,
p has the diagonal block J' H J, where H are the second derivatives of the loss by the outputs. For a vector s of random
signs, the mean of `(J s)' H (J s)` is the trace of the block. The other blocks do not contribute to the trace and are
not computed; with signs for all parameters at once they would add noise. Where a layer multiplies one row of inputs by
a matrix, `J J' = (|a|^2 + 1) I`. Then J s can be replaced by `sqrt(|a|^2 + 1) t`, with a sign t for each output instead
of each parameter, which varies less. Each example has its own signs, so its sample is independent of the others; a
whole batch takes two backward passes.

Largest eigenvalues of symmetric matrices that are known by their products with vectors: power iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset
from fedfair.gradients.kernels import FastLinear
from fedfair.gradients.layer_gradients import Gradients, flat, shaped
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.gradients.passes import ForwardCall, recorded
from fedfair.mechanisms.randomness import key, poisson, signs
from fedfair.models.published import loss
from fedfair.node.node import Node
from fedfair.protocol.round import Round


def clipping_effect(node: Node, weights: Mapping[str, Tensor], round_: Round) -> Gradients:
    """Return the sums over the round's batch with and without clipping, before any noise; they are not private.

    `plain` and `clipped` are gradient sums, `[P]`. `sizes` are the numbers of each group's records in the batch, `[K]`,
    and `excess` the groups' sums of `|g_i - c_i g_i|`, `[K]`. Raises `ValueError` if the round has no clip rule.
    """
    if round_.rule is None:
        raise ValueError("what clipping does to a batch needs a clip rule, which the round does not have")
    probe, groups = node.batch(weights, round_)[:2]
    coefficients, groups = round_.rule.coefficients(probe.norms, groups), groups.cpu()
    sizes, excess = torch.zeros(2, len(round_.rates), dtype=torch.float64)
    sizes.index_add_(0, groups, torch.ones(len(groups), dtype=torch.float64))
    excess.index_add_(0, groups, (probe.norms * (1 - coefficients)).abs().double().cpu())
    plain, clipped = (flat(probe.weighted_sum(c)) for c in (torch.ones_like(coefficients), coefficients))
    return {"plain": plain, "clipped": clipped, "sizes": sizes, "excess": excess}


def losses_and_gradients(model: nn.Module, data: GroupedDataset) -> tuple[Tensor, Tensor]:
    """Return the summed loss of each group's records, `[K]` in double precision, and its gradient, `[K, P]`.

    Equal records pass through the model once, and count as often as they occur.
    """
    distinct, times = data.distinct
    parameters = list(trained_parameters(model)[0].values())
    losses = torch.zeros(len(data.names), dtype=torch.float64)
    gradients = torch.zeros(len(data.names), sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
    for group, row in enumerate(gradients):
        for portion in data.portions((data.group[distinct] == group).nonzero().flatten()):
            with FastLinear():
                by_record = _losses(model, data, distinct[portion])
            total = by_record @ times[portion].to(by_record)
            losses[group] += total.item()
            gradient = torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
            row += torch.cat([part.flatten() for part in gradient]).cpu()
    return losses, gradients


def hessian_products(model: nn.Module, data: GroupedDataset, rows: Tensor, vectors: Tensor) -> Tensor:
    """Multiply the Hessian of the summed loss of some rows by each vector: `[n, P]` from vectors `[n, P]`."""
    parameters = list(trained_parameters(model)[0].values())
    products = torch.zeros_like(vectors)
    for part in data.portions(rows):
        gradient = torch.autograd.grad(_losses(model, data, part).sum(), parameters, create_graph=True,
                                       allow_unused=True, materialize_grads=True)
        joined = torch.cat([piece.flatten() for piece in gradient])
        for product, vector in zip(products, vectors.to(joined.device), strict=True):
            second = torch.autograd.grad(joined @ vector, parameters, retain_graph=True, materialize_grads=True)
            product += torch.cat([piece.flatten() for piece in second]).to(product.device)
    return products


def samples(data: GroupedDataset, rates: Sequence[float], noise_key: str, number: int, purpose: str
            ) -> Iterator[tuple[int, Tensor]]:
    """Yield each group and the rows of a Poisson sample of it; which client holds a record makes no difference."""
    by_record = torch.tensor(rates, dtype=torch.float64)[data.group]
    drawn = poisson(key(noise_key, purpose), number, data.records, by_record)
    for group in range(len(data.names)):
        yield group, drawn[data.group[drawn] == group]


def _losses(model: nn.Module, data: GroupedDataset, rows: Tensor) -> Tensor:
    """Return the losses of some rows, `[m]`, on the model's device."""
    device = next(model.parameters()).device
    return loss(model(data.features(rows, device)), data.y[rows].to(device))


_NUMBERS = 2**22  # the most signs in memory at a time


def repeated_samples(model: nn.Module, data: GroupedDataset, rows: Tensor, noise_key: str, step: int, times: int
                     ) -> Tensor:
    """Return so many samples of `trace_samples` for each of some rows, each with signs of its own: `[times m]`."""
    more = range(1, times if len(rows) else 1)
    keys: list[int | str] = [noise_key, *(key(noise_key, "vector", number) for number in more)]
    return torch.cat([trace_samples(model, data, rows, each, step) for each in keys])


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


_PLANE = 0.05  # the least sine between two unit vectors at which rounding does not tilt their plane


def largest_eigenvalues(product: Callable[[Tensor], Tensor], start: Tensor, images: Tensor, iterations: int
                        ) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalue of each of K symmetric matrices, `[K]`, and unit vectors near its eigenvectors,
    `[K, P]`.

    `product` multiplies each matrix by one vector, `[K, P]` to `[K, P]`. `images` are its results for the unit vectors
    `start`: the first iteration, already done. Power iteration finds the eigenvalue of largest size. Where that is
    negative, a second pass finds the largest eigenvalue, over `H + |it| I`, which has no negative one. The values
    approach the eigenvalues from below.
    """
    values, vectors = _power(product, start, images, iterations)
    if bool((values < 0).any()):
        shift = -values.clamp(max=0)[:, None]
        values, vectors = _power(lambda v: product(v) + shift * v, start, images + shift * start, iterations)
        values = values - shift.flatten()
    return values, vectors


def _power(product: Callable[[Tensor], Tensor], start: Tensor, images: Tensor, iterations: int
           ) -> tuple[Tensor, Tensor]:
    """Return the Rayleigh quotients `[K]` after some power iterations, and the unit vectors `[K, P]` that follow.

    A positive quotient is replaced by the largest Ritz value over the last two vectors, which costs no product. It is
    needed where the smallest eigenvalue is about minus the largest: there the iterations keep turning between the two.
    """
    before, vectors, length = start, start, torch.zeros_like(start[:, 0])
    for _ in range(iterations - 1):
        before, vectors, length = vectors, _following(vectors, images), images.norm(dim=1)
        images = product(vectors)
    values = (vectors * images).sum(1)
    ritz = _largest_ritz(vectors, images, before, length)
    return torch.where(values > 0, torch.maximum(values, ritz), values), _following(vectors, images)


def _following(vectors: Tensor, images: Tensor) -> Tensor:
    """Return the images `[K, P]` scaled to length 1; where an image is zero, its vector."""
    return torch.where(images.norm(dim=1, keepdim=True) > 0, unit_vectors(images), vectors)


def _largest_ritz(vectors: Tensor, images: Tensor, before: Tensor, length: Tensor) -> Tensor:
    """Return the largest Ritz value `[K]` over the plane of two unit vectors (Parlett 1998, chapter 11).

    These are v = `vectors`, whose `images` are Hv, and u = `before`, with Hu = `length` v. The value is minus infinity
    where u and v are too nearly parallel to span a plane.
    """
    cosine = (before * vectors).sum(1)
    sine = (1 - cosine.square()).clamp(min=0).sqrt()
    safe = sine.clamp(min=_PLANE)[:, None]
    second = (before - cosine[:, None] * vectors) / safe
    image = (length[:, None] * vectors - cosine[:, None] * images) / safe
    a, b, c = (vectors * images).sum(1), (second * images).sum(1), (second * image).sum(1)
    return torch.where(sine > _PLANE, (a + c) / 2 + torch.hypot((a - c) / 2, b), -torch.inf)


def unit_vectors(vectors: Tensor) -> Tensor:
    """Scale the rows `[K, P]` to length 1; a row of zeros stays a row of zeros."""
    return torch.nn.functional.normalize(vectors, dim=1, eps=torch.finfo(vectors.dtype).tiny)
