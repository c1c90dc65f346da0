"""Recording of what goes into a model's layers and what comes out, by forward hooks: for gradients of either order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn


class ForwardCall(NamedTuple):
    """One call of a layer: what went in and what came out, as parts of autograd's graph."""

    layer: nn.Module
    inputs: Tensor
    output: Tensor


@contextmanager
def recorder(layers: Iterable[nn.Module], keep: Callable[[ForwardCall], Tensor | None]) -> Iterator[None]:
    """Pass every call of the layers to `keep` while the context lasts; what `keep` returns replaces the output."""

    def hook(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Any:
        """Pass one call on."""
        return keep(ForwardCall(layer, (*args, *kwargs.values())[0], output))

    hooks = [layer.register_forward_hook(hook, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for registered in hooks:
            registered.remove()
