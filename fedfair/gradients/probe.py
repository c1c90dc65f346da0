"""Per-example gradients as norms, inner products and weighted sums: one forward and one backward pass.

A private method needs of each example only `|g_i|`, then `sum_i c_i g_i` for coefficients that follow from the norms.
`per_example` keeps what goes into each layer and what comes back (`fedfair.gradients.passes`), and computes both from
that (`fedfair.gradients.layers`). Models of other layers than those known to keep examples apart fall back to
materialised per-example gradients, each example by itself (`fedfair.gradients.paths`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Hashable, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedfair.gradients.interaction import SIZES, MixingError, is_close, refuse_interaction, refuse_trained_before_norms
from fedfair.gradients.known_layers import is_fixed_norm, is_known, keeps_rows
from fedfair.gradients.layer_probe import LayerProbe, Loss, Probe, trained_parameters
from fedfair.gradients.passes import UnreadableError
from fedfair.gradients.paths import Path, chained, one_at_a_time, recorded, vectorised
from fedfair.gradients.trial import Trial, at_random_weights, evaluating, seeded

log = logging.getLogger(__name__)

_PATHS: tuple[Path, ...] = (chained, recorded, vectorised)
_paths: WeakKeyDictionary[nn.Module, Path] = WeakKeyDictionary()
_chosen_for: WeakKeyDictionary[nn.Module, Hashable] = WeakKeyDictionary()
_same_layers: dict[Hashable, Path] = {}
_BATCHES = 1000  # between two tests of a model for interaction, on average


def per_example(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Probe:
    """Probe the gradients of `loss(model(x), y)` with respect to every parameter that requires a gradient.

    The model's `.grad` stays as it is. Before a model's first batch, and at random times later, batches that are made
    up show whether its examples interact and whether the chosen path gives the right gradients. No record is used.

    Args:
        model: Any module whose output for an example depends on no other example of the batch.
        loss: From outputs `[B, ...]` and targets `[B, ...]` to one loss per example, `[B]`; not their mean.
        x: Inputs, `[B, ...]`. B may be 0: then every sum is zero.
        y: Targets, `[B, ...]`.

    Returns:
        The norms, losses, inner products and weighted sums of the B per-example gradients.

    Raises:
        ValueError: If the model mixes examples or keeps something of a batch, the loss is not one number per example,
            or nothing is trained.

    Examples:
        >>> from fedfair.mechanisms.clipping import Flat
        >>> x, y = torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([1.0, 2.0])
        >>> model = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.zeros_(model.weight)
        >>> probe = per_example(model, lambda output, y: (output[:, 0] - y) ** 2, x, y)
        >>> probe.norms, probe.losses
        (tensor([10.,  4.]), tensor([1., 4.]))
        >>> probe.weighted_sum(Flat(1.0).coefficients(probe.norms, torch.tensor([0, 0])))
        {'weight': tensor([[-0.6000, -1.8000]])}
    """
    if len(x) == 0:
        trained, _ = trained_parameters(model)
        first = next(iter(trained.values()))
        return LayerProbe([], torch.zeros(0, device=first.device, dtype=first.dtype), trained)
    case = (loss, x.dim(), x.dtype, tuple(module.training for module in model.modules()))
    if _chosen_for.get(model) != case:
        _paths[model] = _path_of_its_layers(model, loss, x, y)
        _chosen_for[model] = case
    elif secrets.randbelow(_BATCHES) == 0:
        _refuse_mixing(Trial.of(model, loss, x, y), (secrets.choice(SIZES),))
    path = _paths[model]
    try:
        return path(model, loss, x, y)
    except UnreadableError:
        _paths[model] = _choose_path(model, loss, x, y, _PATHS[_PATHS.index(path) + 1:])
        return _paths[model](model, loss, x, y)


def refuse_mixing_layers(model: nn.Module) -> None:
    """Raise `ValueError` if a layer's output for one example depends on the others in its batch (BatchNorm that is not
    frozen), or a layer changes its weights depending on its inputs (an embedding with `max_norm`).
    """
    for name, layer in model.named_modules():
        if getattr(layer, "max_norm", None) is not None:
            raise ValueError(
                f"layer '{name}' ({type(layer).__name__}) has max_norm = {layer.max_norm}: it scales the weights of "
                "every word that a batch holds, without noise, so anybody can see which those are; leave max_norm out"
            )
        if (isinstance(layer, _BatchNorm) or getattr(layer, "track_running_stats", False)) and not is_fixed_norm(layer):
            raise ValueError(
                f"layer '{name}' ({type(layer).__name__}) mixes the examples of a batch, so clipping one example's "
                "gradient bounds nothing: use GroupNorm or LayerNorm instead, or, behind layers that are not trained, "
                "freeze a BatchNorm (requires_grad_(False).eval())"
            )


def _path_of_its_layers(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> Path:
    """Choose a path once for all models of the same known layers: another instance would be tried with the same end."""
    if not is_known(model):
        return _choose_path(model, loss, x, y, _PATHS)
    parameters = [(name, p.shape, p.dtype, p.requires_grad) for name, p in model.named_parameters()]
    layers = (repr(model), tuple(parameters), loss, x.shape[1:], x.dtype, y.shape[1:], y.dtype, x.device,
              tuple(module.training for module in model.modules()))
    if layers not in _same_layers:
        if len(_same_layers) == 100:
            _same_layers.clear()
        _same_layers[layers] = _choose_path(model, loss, x, y, _PATHS)
    return _same_layers[layers]


def _choose_path(model: nn.Module, loss: Loss, x: Tensor, y: Tensor, paths: tuple[Path, ...]) -> Path:
    """Return the first path that is right on batches like this one; if there is none, one example at a time."""
    trial = Trial.of(model, loss, x, y)
    _refuse_mixing(trial)
    for path in paths:
        if _is_right(path, trial):
            if path is vectorised:
                log.warning("%s: per-example gradients by torch.func, slower than for the layers known here",
                            type(model).__name__)
            return path
    log.warning("%s: per-example gradients one by one, very slow", type(model).__name__)
    return one_at_a_time


def _refuse_mixing(trial: Trial, sizes: Sequence[int] = SIZES) -> None:
    """Raise `ValueError` if the model mixes examples.

    A model that cannot be run on made-up batches is one of the user's own: its examples go through it one by one.
    """
    refuse_mixing_layers(trial.model)
    refuse_trained_before_norms(trial)
    try:
        refuse_interaction(trial, sizes)
    except MixingError:
        raise
    except Exception as error:
        log.warning("%s could not be tried on random inputs: %s", type(trial.model).__name__, error)


def _is_right(path: Path, trial: Trial) -> bool:
    """Say whether a path gives the norms, and the weighted sum, of examples that go through the model one by one.

    A second batch holds one usual example among extreme ones.
    """
    model, loss, device = trial.model, trial.loss, trial.x.device
    try:
        with seeded(secrets.randbits(32), device), evaluating(model), at_random_weights(model):
            if path in (chained, recorded) and not keeps_rows(model, trial.inputs(3)):
                return False
            x = trial.inputs(5)
            y = trial.targets(model(x))
            probe, alone = path(model, loss, x, y), one_at_a_time(model, loss, x, y)
            coefficients = torch.randn_like(alone.norms)
            sums, expected = probe.weighted_sum(coefficients), alone.weighted_sum(coefficients)
            scale = float(alone.norms.norm()) * 5
            among = torch.cat([x[:1], trial.inputs(4, 1e4)])
            norm = path(model, loss, among, y).norms[0]
    except (RuntimeError, UnreadableError, AttributeError, IndexError, TypeError):
        return False
    return (all(is_close(sums[name], value, scale) for name, value in expected.items())
            and is_close(probe.norms, alone.norms, scale) and is_close(norm, alone.norms[0], float(alone.norms[0])))
