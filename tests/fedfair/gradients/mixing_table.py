"""What happens to modules and compositions that mix examples, or might: a table, with frozen norms among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from tests.fedfair.gradients.mixing_layers import (
    CLASSES,
    WIDTH,
    Between,
    Doubled,
    Function,
    Make,
    Notes,
    OfItsClass,
    Pulling,
    Subclass,
    TiedWords,
    between,
    centre_in_a_closure,
    centre_in_a_default,
    centre_in_a_global,
    centre_in_a_global_variable,
    centre_in_a_variable_of_a_closure,
    centre_in_an_attribute,
    centre_in_an_object,
    centre_past_the_version_counter,
    chain,
    extreme_switch,
    first_batch_scales,
    generator_of_centres,
    largest,
    latest_centre,
    mix_style,
    mixup,
    mixup_by_numpy,
    mixup_by_python,
    parametrised,
    random_by_the_batch,
    replaced,
    running_centre,
    sequence,
    standardised,
    with_hook,
    zero_gate,
)
from tests.fedfair.gradients.probing import randint, randn


def frozen_batch_norm(frozen_before: bool = False, **changed: object) -> nn.Module:
    """Make a chain with a frozen BatchNorm that has seen other data; `changed` stands in front of what it holds."""
    model = chain(lambda: nn.BatchNorm1d(WIDTH))()
    norm = model[1].requires_grad_(False).eval()
    model[0].requires_grad_(not frozen_before)
    norm.running_mean.normal_()
    norm.running_var.exponential_()
    for name, value in changed.items():
        object.__setattr__(norm, name, value)
    return model


class SubclassOfNorm(nn.BatchNorm1d):
    """Normalises by the batch, whatever its mode."""

    def forward(self, h: Tensor) -> Tensor:  # noqa: D102
        return standardised(h)


class FrozenFeatures(nn.Module):
    """Frozen layers with a BatchNorm, and a head; `use` says how the norm is called on what the first layer gives."""

    def __init__(self, use: Function, trained: bool = False, norm: Callable[[int], nn.Module] = nn.BatchNorm1d) -> None:
        super().__init__()
        self.first, self.norm, self.head, self.use = nn.Linear(4, WIDTH), norm(WIDTH), nn.Linear(WIDTH, CLASSES), use
        self.first.requires_grad_(trained)
        self.norm.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.use(self.norm, self.first(x)))


def frozen_features(use: Function, **other: Any) -> Make:
    return lambda: FrozenFeatures(use, **other)


def takes_the_mean_of_the_batch(norm: Any, h: Tensor) -> Tensor:
    norm.running_mean.copy_(h.detach().mean(0))
    return norm(h)


def trains_for_a_moment(norm: Any, h: Tensor) -> Tensor:
    out = norm.train()(h)
    norm.eval()
    return out


def frozen_with(change: Callable[[Any], object]) -> Make:
    def make() -> nn.Module:
        model = frozen_batch_norm(True)
        change(model[1])
        return model

    return make


def twice() -> nn.Module:
    model = frozen_batch_norm(True)
    return nn.Sequential(model[0], model[1], nn.Linear(WIDTH, WIDTH), model[1], model[2])


class Line(NamedTuple):
    """One line of the table: a model, what happens to it, and whether it takes words."""

    make: Make
    outcome: str
    words: bool = False


def words_into(*layers: Callable[[], nn.Module]) -> Make:
    return lambda: nn.Sequential(*(layer() for layer in layers))


TRANSFORMER = {"d_model": WIDTH, "nhead": 2, "dim_feedforward": 8, "batch_first": True}
FAST, VMAP, SINGLE, REFUSED = "fast", "vmap", "one by one", "refused"
TABLE: dict[str, Line] = {
    "linear layers": Line(chain(nn.Tanh), FAST),
    "dropout": Line(chain(nn.Dropout), FAST),
    "alpha dropout": Line(chain(nn.AlphaDropout), FAST),
    "layer norm": Line(chain(lambda: nn.LayerNorm(WIDTH)), FAST),
    "group norm": Line(chain(lambda: nn.GroupNorm(2, WIDTH)), FAST),
    "softmax over classes": Line(chain(lambda: nn.Softmax(1)), FAST),
    "GELU": Line(chain(nn.GELU), FAST),
    "instance norm": Line(chain(lambda: nn.Unflatten(1, (2, 3)), lambda: nn.InstanceNorm1d(2), nn.Flatten), FAST),
    "convolution": Line(chain(lambda: nn.Unflatten(1, (1, 2, 3)), lambda: nn.Conv2d(1, 1, 1), nn.Flatten), FAST),
    "embedding": Line(words_into(lambda: nn.Embedding(7, 2), nn.Flatten, lambda: nn.Linear(8, CLASSES)), FAST, True),
    "function by itself": Line(between(lambda model, h: torch.tanh(h)), VMAP),
    "functional dropout": Line(between(lambda model, h: F.dropout(h, 0.5, model.training)), VMAP),
    "tied weights": Line(TiedWords, VMAP, True),
    "weight norm": Line(parametrised(parametrizations.weight_norm), VMAP),
    "parametrisation": Line(parametrised(lambda layer: parametrize.register_parametrization(
        layer, "weight", Doubled())), VMAP),
    "forward hook": Line(with_hook("register_forward_hook", lambda m, a, out: 2 * out), VMAP),
    "forward pre-hook": Line(with_hook("register_forward_pre_hook", lambda m, a: (2 * a[0],)), VMAP),
    "batch size doubles": Line(between(lambda model, h: h * 2 if len(h) > 50 else h), REFUSED),
    "branch on a number": Line(between(lambda model, h: h if bool((0 * h < 1).all()) else -h), SINGLE),
    "LSTM": Line(sequence(lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True)), VMAP),
    "GRU": Line(sequence(lambda: nn.GRU(WIDTH, WIDTH, batch_first=True)), VMAP),
    "RNN of two layers": Line(sequence(lambda: nn.RNN(WIDTH, WIDTH, 2, batch_first=True, dropout=0.3)), VMAP),
    "LSTM both ways": Line(sequence(lambda: nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True), True),
                           VMAP, True),
    "attention": Line(sequence(lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True)), VMAP),
    "transformer": Line(sequence(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(**TRANSFORMER), 2), True),
                        VMAP, True),
    "LSTM, time first": Line(sequence(lambda: nn.LSTM(WIDTH, WIDTH)), REFUSED),
    "attention over the batch": Line(sequence(lambda: nn.MultiheadAttention(WIDTH, 2)), REFUSED),
    "attention over the batch, of words": Line(sequence(lambda: nn.MultiheadAttention(WIDTH, 2), True), REFUSED, True),
    "batch norm": Line(chain(lambda: nn.BatchNorm1d(WIDTH)), REFUSED),
    "frozen batch norm behind trained layers": Line(frozen_batch_norm, REFUSED),
    "frozen batch norm behind frozen layers": Line(lambda: frozen_batch_norm(True), FAST),
    "frozen batch norm in front": Line(lambda: nn.Sequential(
        nn.BatchNorm1d(4).requires_grad_(False).eval(), nn.Linear(4, CLASSES)), FAST),
    "frozen batch norm of maps": Line(lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 1).requires_grad_(False),
        nn.BatchNorm2d(2).requires_grad_(False).eval(), nn.Flatten(), nn.Linear(8, CLASSES)), FAST),
    "frozen batch norm in a module": Line(frozen_features(lambda norm, h: norm(h)), VMAP),
    "frozen batch norm in a module, behind trained layers": Line(
        frozen_features(lambda norm, h: norm(h), trained=True), REFUSED),
    "frozen batch norm, called by name": Line(frozen_features(lambda norm, h: norm(input=h), trained=True), REFUSED),
    "frozen batch norm, called past its hooks": Line(frozen_features(lambda norm, h: norm.forward(h)), REFUSED),
    "frozen batch norm, unused": Line(frozen_features(lambda norm, h: h), REFUSED),
    "frozen batch norm, then training": Line(lambda: frozen_batch_norm(True).train(), REFUSED),
    "frozen batch norm that trains for a moment": Line(frozen_features(trains_for_a_moment), REFUSED),
    "frozen batch norm with the batch's mean": Line(frozen_features(takes_the_mean_of_the_batch), REFUSED),
    "frozen batch norm with trained weights": Line(frozen_with(lambda norm: norm.weight.requires_grad_()), REFUSED),
    "frozen batch norm without statistics": Line(frozen_features(
        lambda norm, h: norm(h), norm=lambda width: nn.BatchNorm1d(width, track_running_stats=False)), REFUSED),
    "frozen batch norm whose statistics are taken away": Line(frozen_with(
        lambda norm: (setattr(norm, "running_mean", None), setattr(norm, "running_var", None))), REFUSED),
    "frozen batch norm whose statistics are hidden": Line(
        lambda: frozen_batch_norm(True, running_mean=None, running_var=None), REFUSED),
    "frozen batch norm with a forward of its own": Line(
        lambda: frozen_batch_norm(True, forward=standardised), REFUSED),
    "frozen batch norm with a hook": Line(frozen_with(
        lambda norm: norm.register_forward_hook(lambda m, a, out: standardised(out))), REFUSED),
    "frozen batch norm, a mode that is none": Line(lambda: frozen_batch_norm(True, training=0), REFUSED),
    "frozen subclass of batch norm": Line(frozen_features(lambda norm, h: norm(h), norm=SubclassOfNorm), REFUSED),
    "frozen synchronised batch norm": Line(frozen_features(lambda norm, h: norm(h), norm=nn.SyncBatchNorm), REFUSED),
    "frozen batch norm twice, once behind trained layers": Line(twice, REFUSED),
    "instance norm with statistics": Line(chain(lambda: nn.Unflatten(1, (2, 3)), lambda: nn.InstanceNorm1d(
        2, track_running_stats=True), nn.Flatten), REFUSED),
    "embedding with max_norm": Line(words_into(lambda: nn.Embedding(7, 2, max_norm=1.0), nn.Flatten,
                                               lambda: nn.Linear(8, CLASSES)), REFUSED, True),
    "batch norm by hand": Line(between(lambda model, h: standardised(h)), REFUSED),
    "batch norm by hand, dropout beside it": Line(between(lambda model, h: F.dropout(
        standardised(h) if model.training else h, 0.1, model.training)), REFUSED),
    "detached batch mean": Line(between(lambda model, h: h - h.mean(0).detach()), REFUSED),
    "batch norm in large batches": Line(between(lambda model, h: standardised(h) if len(h) > 16 else h), REFUSED),
    "mixup": Line(between(mixup), REFUSED),
    "mixup by NumPy": Line(between(mixup_by_numpy), REFUSED),
    "mixup by Python": Line(between(mixup_by_python), REFUSED),
    "MixStyle": Line(between(mix_style), REFUSED),
    "sorting over the batch": Line(between(lambda model, h: h.sort(0).values), REFUSED),
    "cumulated over the batch": Line(between(lambda model, h: h.cumsum(0)), REFUSED),
    "rolled over the batch": Line(between(lambda model, h: h + h.roll(1, 0)), REFUSED),
    "first example as a query": Line(between(lambda model, h: h * h[:1]), REFUSED),
    "softmax over the batch": Line(chain(lambda: nn.Softmax(0)), REFUSED),
    "zero-initialised gate": Line(zero_gate, REFUSED),
    "extreme values switch": Line(between(extreme_switch), REFUSED),
    "subclass that mixes": Line(chain(Subclass), REFUSED),
    "forward hook that mixes": Line(with_hook("register_forward_hook", lambda m, a, out: standardised(out)), REFUSED),
    "forward pre-hook that mixes": Line(with_hook("register_forward_pre_hook", lambda m, a: (standardised(a[0]),)),
                                        REFUSED),
    "backward hook that mixes": Line(with_hook("register_full_backward_hook", lambda m, i, o: (
        i[0] + i[0].mean(0),)), REFUSED),
    "forward replaced": Line(replaced("forward", standardised), REFUSED),
    "call replaced": Line(replaced("_call_impl", standardised), REFUSED),
    "running centre in a buffer": Line(between(running_centre, centre=torch.zeros(WIDTH)), REFUSED),
    "centre past the version counter": Line(between(centre_past_the_version_counter, centre=torch.zeros(WIDTH)),
                                            REFUSED),
    "centre in an attribute": Line(between(centre_in_an_attribute), REFUSED),
    "latest centre": Line(between(latest_centre, memory=None), REFUSED),
    "centre in a closure": Line(centre_in_a_closure, REFUSED),
    "centre in a variable of a closure": Line(centre_in_a_variable_of_a_closure, REFUSED),
    "centre in a global list": Line(between(centre_in_a_global), REFUSED),
    "centre in a global variable": Line(between(centre_in_a_global_variable), REFUSED),
    "centre in a default": Line(between(centre_in_a_default), REFUSED),
    "centre in a class": Line(OfItsClass, REFUSED),
    "centre in an object": Line(lambda: Between(centre_in_an_object, notes=Notes()), REFUSED),
    "centre in a generator": Line(generator_of_centres, REFUSED),
    "largest value": Line(between(largest, most=torch.full((), 1e3)), REFUSED),
    "scale by the first batch": Line(between(first_batch_scales, scale=None), REFUSED),
    "spectral norm": Line(parametrised(parametrizations.spectral_norm), REFUSED),
    "seeded by the batch": Line(between(random_by_the_batch), REFUSED),
    "a rule for vmap that mixes": Line(between(lambda model, h: Pulling.apply(h)), SINGLE),
}


def built(line: Line, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return line.make().double()


def records(line: Line, count: int = 9) -> tuple[Tensor, Tensor]:
    x = randint(7, count, 4) if line.words else randn(count, 4)
    return x, randint(CLASSES, count, seed=1)
