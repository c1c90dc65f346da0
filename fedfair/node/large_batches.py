"""The gradients of a batch, which may be all records of a table: then their features are never in memory together.

Of most models they are made portion by portion, as often as they are asked for (`PortionedProbe`). Of one linear layer
on rows of ones, scores are sums of looked-up weights, and sums of gradients are counts with weights (`LookedUpProbe`):
a row phi of d features has the number v in the places of its ones and a constant c at its end. So W phi is v times the
sum of W's columns at those places, and c times its last one; the gradient of a loss with the slopes s is s phi', of
length |s| |phi|. No row is ever written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedfair.datasets.features.cells import Cells
from fedfair.datasets.features.encoding import number_of_ones, value_of_one
from fedfair.gradients.layer_gradients import Gradients, full_precision
from fedfair.gradients.layer_probe import Loss, Probe, trained_parameters
from fedfair.gradients.passes import UnreadableError, chain_of
from fedfair.gradients.probe import per_example

MADE_TOGETHER = 2**14
"""Records of cells whose features and gradients may be in memory at once."""


def probe_of(model: nn.Module, loss: Loss, x: Tensor, targets: Tensor) -> Probe:
    """Return the gradients of a batch: those of one linear layer by lookups, those of other models in portions.

    Lookups round otherwise than features written out. With huge weights that cancel, any record then has another
    gradient: so the model and its features decide on them, and never the number of records, which one record changes.

    Args:
        model: The model.
        loss: From outputs `[n, ...]` and targets to one loss per example, `[n]`.
        x: Its inputs, `[n, ...]`, which may be cells of a table whose features are not made yet.
        targets: Targets, `[n, ...]`.

    Raises:
        ValueError: If the model mixes examples, see `per_example`.
    """
    if not isinstance(x, Cells):
        return per_example(model, loss, x, targets)
    rows = _rows_of_ones(x)
    if rows is not None and len(x):
        with suppress(UnreadableError):
            return LookedUpProbe(model, loss, rows, targets)
    if len(x) <= MADE_TOGETHER:
        return per_example(model, loss, x.made(), targets)  # `vmap`, which some models need, takes no cells
    return PortionedProbe([partial(probe_of, model, loss, x.rows(part), targets[part])
                           for part in torch.split(torch.arange(len(x)), MADE_TOGETHER)])


def _rows_of_ones(cells: Cells) -> Ones | None:
    """Return the rows of records whose features are bounded ones; None for others.

    Args:
        cells: Their features.
    """
    ones, bounding, features = cells.ones(), cells.encoding.bounding, len(cells.encoding.features)
    if ones is None or bounding is None:
        return None
    return Ones(ones, value_of_one(number_of_ones(ones, features), bounding), features, bounding.last)


class PortionedProbe:
    """A probe of several portions of a batch, of which only norms and losses are kept.

    Args:
        portions: Makes the probe of each portion, one after the other; at least one.

    Examples:
        >>> from torch import nn
        >>> from fedfair.gradients.probe import per_example
        >>> model = nn.Linear(1, 1, bias=False)
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> def portion(rows: slice) -> Probe:
        ...     return per_example(model, lambda output, y: output[:, 0] * y, x[rows], torch.ones(len(x[rows])))
        >>> probe = PortionedProbe([lambda: portion(slice(0, 2)), lambda: portion(slice(2, 3))])
        >>> probe.norms, probe.weighted_sum(torch.tensor([1.0, 0.5, 0.25]))
        (tensor([1., 2., 4.]), {'weight': tensor([[3.]])})
    """

    def __init__(self, portions: Sequence[Callable[[], Probe]]) -> None:
        self._portions = portions
        kept = [(probe.norms, probe.losses) for probe in (portion() for portion in portions)]
        self.norms, self.losses = (torch.cat(parts) for parts in zip(*kept, strict=True))
        self._sizes = [len(norms) for norms, _ in kept]

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `fedfair.gradients.layer_probe.Probe`."""
        return torch.cat([portion().dot(direction) for portion in self._portions])

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `fedfair.gradients.layer_probe.Probe`.

        Coefficients follow from the norms that were seen first. Should a model be random, and a gradient be longer when
        it is made again, it is shortened to that norm: what a clip rule bounds stays bounded.
        """
        parts = zip(self._portions, torch.split(coefficients, self._sizes), torch.split(self.norms, self._sizes),
                    strict=True)
        return reduce(_added, (_no_longer(portion(), own, norms) for portion, own, norms in parts))


def _no_longer(probe: Probe, coefficients: Tensor, norms: Tensor) -> Gradients:
    """Return the weighted sum of gradients, each shortened to at most a norm."""
    kept = torch.where(probe.norms > norms, norms / probe.norms, torch.ones_like(norms))
    return probe.weighted_sum(coefficients * kept)


def _added(sums: Gradients, more: Gradients) -> Gradients:
    """Return the sums of both."""
    return {name: value + more[name] for name, value in sums.items()}


class Ones(NamedTuple):
    """Rows phi of d features and a constant.

    Attributes:
        places: Where each row's ones are, d for one that is none, `[n, columns]`, whole numbers.
        values: What a one of each row stands for, `[n]`.
        features: Their number d.
        constant: The last number of every row.
    """

    places: Tensor
    values: Tensor
    features: int
    constant: float

    def norms(self) -> Tensor:
        """Return the length of each row, `[n]`."""
        known = number_of_ones(self.places, self.features)
        return (known * self.values.square() + self.constant**2).sqrt()

    def times(self, weight: Tensor) -> Tensor:
        """Return each row times a matrix `[q, d + 1]`: `[n, q]`."""
        table = torch.cat([weight[:, :self.features], weight.new_zeros(len(weight), 1)], 1).t().contiguous()
        total = weight.new_zeros(len(self.places), len(weight))
        for places in self._columns():
            total += table.index_select(0, places)
        return total * self.values[:, None] + self.constant * weight[:, self.features]

    def portions(self) -> Iterator[Ones]:
        """Yield rows that are taken together."""
        for places, values in zip(_split(self.places), _split(self.values), strict=True):
            yield self._replace(places=places, values=values)

    def weighted(self, coefficients: Tensor, slopes: Tensor) -> Tensor:
        """Return the sum of c_i s_i phi_i' for coefficients `[n]` and slopes `[n, q]`: `[q, d + 1]`."""
        total = slopes.new_zeros(slopes.shape[1], self.features + 1)
        for part, own, along in zip(self.portions(), _split(coefficients), _split(slopes), strict=True):
            total += torch.stack([part._weighted(own * column) for column in along.unbind(1)])
        return total

    def _weighted(self, factors: Tensor) -> Tensor:
        """Return the sum of f_i phi_i for factors `[n]`: `[d + 1]`."""
        scaled, total = factors * self.values, factors.new_zeros(self.features + 1)
        for places in self._columns():
            total += torch.bincount(places, scaled, self.features + 1)
        total[self.features] = self.constant * factors.sum()
        return total

    def _columns(self) -> Iterator[Tensor]:
        """Yield the places of each column, `[n]`."""
        yield from (column.long() for column in self.places.unbind(1))


class LookedUpProbe:
    """A probe of a linear layer on rows of ones (`fedfair.gradients.layer_probe.Probe`).

    Args:
        model: One linear layer, alone or in `Sequential`s, also after a `Flatten`, all of which is trained, in double
            precision.
        loss: From outputs `[n, q]` and targets to one loss per example, `[n]`.
        rows: Its inputs, of d + 1 numbers.
        targets: Targets, `[n]`.

    Raises:
        UnreadableError: For another model.

    Examples:
        >>> model = nn.Linear(3, 1, bias=False, dtype=torch.float64)
        >>> rows = Ones(torch.tensor([[0], [1], [2]]), torch.ones(3).double(), 2, 2.0)  # the third has none
        >>> probe = LookedUpProbe(model, lambda output, y: output[:, 0] * y, rows, torch.ones(3))
        >>> probe.norms.square(), probe.weighted_sum(torch.ones(3).double())
        (tensor([5., 5., 4.], dtype=torch.float64), {'weight': tensor([[1., 1., 6.]], dtype=torch.float64)})
    """

    def __init__(self, model: nn.Module, loss: Loss, rows: Ones, targets: Tensor) -> None:
        layer, self._names = _only_layer(model)
        self._rows = rows
        self._slopes = layer.weight.new_empty(len(targets), len(layer.weight))
        self.norms, self.losses = (layer.weight.new_empty(len(targets)) for _ in range(2))
        whole = (self._slopes, self.norms, self.losses)
        each = zip(rows.portions(), *map(_split, (targets, *whole)), strict=True)
        for part, own, *made in each:  # written where they stay: to join them would take twice the memory
            for values, place in zip(_of_scores(layer, loss, part, own), made, strict=True):
                place.copy_(values)

    def dot(self, direction: Mapping[str, Tensor]) -> Tensor:
        """See `fedfair.gradients.layer_probe.Probe`."""
        along = self._rows.times(direction[self._names["weight"]])
        if "bias" in self._names:
            along = along + direction[self._names["bias"]]
        return (self._slopes * along).sum(1)

    def weighted_sum(self, coefficients: Tensor) -> Gradients:
        """See `fedfair.gradients.layer_probe.Probe`."""
        exact = full_precision(coefficients)
        sums = {self._names["weight"]: self._rows.weighted(exact, self._slopes)}
        return sums | ({self._names["bias"]: (exact[:, None] * self._slopes).sum(0)} if "bias" in self._names else {})


def _of_scores(layer: nn.Linear, loss: Loss, rows: Ones, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slopes of the losses in a layer's scores, `[n, q]`, the lengths of the gradients, and the losses."""
    with torch.no_grad():
        output = rows.times(layer.weight) + (0 if layer.bias is None else layer.bias)
    output.requires_grad_()
    losses = loss(output, targets)
    (slopes,) = torch.autograd.grad(losses.sum(), output)
    lengths = rows.norms() if layer.bias is None else rows.norms().square().add(1).sqrt()
    return slopes, torch.linalg.vector_norm(slopes, dim=1) * lengths, losses.detach()


def _split(values: Tensor) -> Sequence[Tensor]:
    """Return the portions of values of each record that are taken together."""
    return torch.split(values, MADE_TOGETHER)


def _only_layer(model: nn.Module) -> tuple[nn.Linear, dict[str, str]]:
    """Return a model's only layer, and the model's names of its parameters; raise `UnreadableError` for another.

    A `Flatten` before it changes nothing of rows.
    """
    layer, *rest = chain_of(model)
    if type(layer) is nn.Flatten and layer.start_dim == 1 and len(rest) == 1:
        layer, *rest = rest
    trained, owned = trained_parameters(model)
    if rest or type(layer) is not nn.Linear or len(trained) < len([*model.parameters()]) or (
            layer.weight.dtype != torch.float64 or layer.weight.device.type != "cpu"):
        raise UnreadableError
    return layer, owned[layer]
