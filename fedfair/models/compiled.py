"""Models of `torch.compile`: what they wrap is trained, since gradients are taken example by example.

A compiled model calls the layers that it wraps, and shares their parameters; Dynamo marks these while it runs, as a
layer would that keeps something of its examples.
"""

from __future__ import annotations

from torch import nn

_WRAPPED = "_orig_mod"  # of `torch._dynamo.eval_frame.OptimizedModule`, whose import takes a second
_IN_PLACE = "_compiled_call_impl"


def uncompiled(model: nn.Module) -> nn.Module:
    """Return what a compiled model wraps, with the same parameters; any other model as it is.

    Args:
        model: The model.

    Raises:
        ValueError: If a layer of it is compiled by itself, or it was compiled in place, by `model.compile()`.

    Examples:
        >>> import torch
        >>> model = nn.Linear(2, 2)
        >>> uncompiled(torch.compile(model)) is uncompiled(model) is model
        True
    """
    wrapped = getattr(model, _WRAPPED, None) if type(model).__name__ == "OptimizedModule" else None
    plain = wrapped if isinstance(wrapped, nn.Module) else model
    for name, layer in plain.named_modules():
        if type(layer).__name__ == "OptimizedModule" or getattr(layer, _IN_PLACE, None) is not None:
            which = f"layer {name} of the model" if name else "model"
            raise ValueError(f"the {which} is compiled by torch.compile: leave that out, or compile the whole model by "
                             "torch.compile(model), which is trained as it is without")
    return plain
