"""The trained parameters of a model, by name and by layer."""

from __future__ import annotations

from torch import nn


def trained_parameters(model: nn.Module) -> tuple[dict[str, nn.Parameter], dict[nn.Module, dict[str, str]]]:
    """Return the parameters that require a gradient by name, each once, and the layers that own them.

    For each layer, the model's names of its parameters by the layer's names ("weight": "2.weight"). A tied parameter
    keeps its first name. Raises `ValueError` if no parameter requires a gradient.
    """
    trained: dict[str, nn.Parameter] = {}
    owned: dict[nn.Module, dict[str, str]] = {}
    first_names: dict[int, str] = {}
    for prefix, layer in model.named_modules():
        for attribute, parameter in layer._parameters.items():
            if parameter is not None and parameter.requires_grad:
                name = first_names.setdefault(id(parameter), f"{prefix}.{attribute}" if prefix else attribute)
                trained[name] = parameter
                owned.setdefault(layer, {})[attribute] = name
    if not trained:
        raise ValueError("the model has no parameter that requires a gradient: there is nothing to train")
    return trained, owned
