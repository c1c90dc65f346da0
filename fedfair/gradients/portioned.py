"""The gradients of a batch too large for the memory: made portion by portion, as often as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor

from fedfair.gradients.layer_probe import Probe
from fedfair.gradients.layers import Gradients


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
