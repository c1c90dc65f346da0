"""What happens to modules and compositions that mix examples, or might: a table, and the ground truth of each line.

Whatever is released is bounded: with clip norm C, one record more changes the clipped gradient sum by C at most.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from fedfair.gradients import interaction
from fedfair.gradients import probe as gradients
from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat
from fedfair.models.published import loss
from tests.fedfair.gradients.probing import one_by_one, randint, randn

CLIP_NORM, WIDTH, CLASSES = 1.0, 6, 3
Make = Callable[[], nn.Module]
Function = Callable[[nn.Module, Tensor], Tensor]

CENTRES: list[Tensor] = []
LATEST = torch.zeros(WIDTH, dtype=torch.float64)


class Between(nn.Module):
    """A layer, what a function makes of its output and of the module, and a head."""

    def __init__(self, function: Function, **kept: Any) -> None:
        super().__init__()
        self.first, self.head, self.function = nn.Linear(4, WIDTH), nn.Linear(WIDTH, CLASSES), function
        for name, value in kept.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.function(self, self.first(x)))


def between(function: Function, **kept: Any) -> Make:
    return lambda: Between(function, **kept)


def chain(*layers: Callable[[], nn.Module]) -> Make:
    return lambda: nn.Sequential(nn.Linear(4, WIDTH), *(layer() for layer in layers), nn.Linear(WIDTH, CLASSES))


def standardised(h: Tensor) -> Tensor:
    return (h - h.mean(0)) / (h.std(0, unbiased=False) + 1e-5)


def mixup(model: nn.Module, h: Tensor) -> Tensor:
    share = torch.rand(1, dtype=h.dtype)
    return share * h + (1 - share) * h[torch.randperm(len(h))] if model.training else h


def mixup_by_numpy(model: nn.Module, h: Tensor) -> Tensor:
    return (h + h[torch.from_numpy(np.random.permutation(len(h)))]) / 2 if model.training else h


def mixup_by_python(model: nn.Module, h: Tensor) -> Tensor:
    return (h + h[random.sample(range(len(h)), len(h))]) / 2 if model.training else h


def mix_style(model: nn.Module, h: Tensor) -> Tensor:
    """Give each example the mean and deviation of another (Zhou et al. 2021)."""
    other = torch.randperm(len(h))
    mean, deviation = h.mean(1, keepdim=True), h.std(1, keepdim=True)
    return (h - mean) / deviation * deviation[other] + mean[other] if model.training else h


def running_centre(model: Any, h: Tensor) -> Tensor:
    model.centre.lerp_(h.detach().mean(0), 0.1)
    return h - model.centre


def centre_past_the_version_counter(model: Any, h: Tensor) -> Tensor:
    model.centre.data.lerp_(h.detach().mean(0), 0.1)
    return h


def centre_in_an_attribute(model: Any, h: Tensor) -> Tensor:
    model.memory = h.detach().mean(0)
    return h


def latest_centre(model: Any, h: Tensor) -> Tensor:
    before, model.memory = model.memory, h.detach().mean(0)
    return h if before is None else h - before


def centre_in_a_closure() -> nn.Module:
    centres: list[Tensor] = []

    def remembering(model: nn.Module, h: Tensor) -> Tensor:
        centres.append(h.detach().mean(0))
        return h - torch.stack(centres).mean(0)

    return Between(remembering)


def centre_in_a_variable_of_a_closure() -> nn.Module:
    centre = torch.zeros(WIDTH, dtype=torch.float64)

    def remembering(model: nn.Module, h: Tensor) -> Tensor:
        nonlocal centre
        centre = h.detach().mean(0)
        return h

    return Between(remembering)


def centre_in_a_global(model: nn.Module, h: Tensor) -> Tensor:
    CENTRES.append(h.detach().mean(0))
    return h - torch.stack(CENTRES).mean(0)


def centre_in_a_global_variable(model: nn.Module, h: Tensor) -> Tensor:
    global LATEST
    before, LATEST = LATEST, h.detach().mean(0)
    return h - before


def centre_in_a_default(model: nn.Module, h: Tensor, centres: list[Tensor] = []) -> Tensor:  # noqa: B006
    centres.append(h.detach().mean(0))
    return h - torch.stack(centres).mean(0)


class OfItsClass(Between):
    """Keeps a centre for all models of its class."""

    shared: Tensor | None = None

    def __init__(self) -> None:
        super().__init__(lambda model, h: h)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = self.first(x)
        before, OfItsClass.shared = OfItsClass.shared, h.detach().mean(0)
        return self.head(h if before is None else h - before)


class Notes:
    """An object beside a model."""

    centre = 0.0


def centre_in_an_object(model: Any, h: Tensor) -> Tensor:
    before, model.notes.centre = model.notes.centre, float(h.detach().mean())
    return h - before


def generator_of_centres() -> nn.Module:
    def running() -> Any:
        mean = torch.zeros(WIDTH, dtype=torch.float64)
        while True:
            mean = (mean + (yield mean)) / 2

    keeper = running()
    next(keeper)
    return Between(lambda model, h: h - keeper.send(h.detach().mean(0)))


def largest(model: Any, h: Tensor) -> Tensor:
    model.most.copy_(torch.maximum(model.most, h.detach().abs().max()))
    return h / model.most


def first_batch_scales(model: Any, h: Tensor) -> Tensor:
    """Set a scale by the first batch, as ActNorm does."""
    if model.scale is None:
        model.scale = 1 / (h.detach().std() + 1e-5) if len(h) > 1 else torch.ones(())
    return h * model.scale


def random_by_the_batch(model: nn.Module, h: Tensor) -> Tensor:
    torch.manual_seed(int(h.detach().abs().sum() * 1e6) % 2**31)
    return F.dropout(h, 0.5)


def extreme_switch(model: nn.Module, h: Tensor) -> Tensor:
    return standardised(h) if bool((h.abs() > 100).any()) else h


class Pulling(torch.autograd.Function):
    """The identity, with a rule for vmap that mixes."""

    @staticmethod
    def forward(h: Tensor) -> Tensor:  # noqa: D102
        return h.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: D102
        pass

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # noqa: D102
        return slope

    @staticmethod
    def vmap(info: Any, in_dims: Any, h: Tensor) -> tuple[Tensor, int]:  # noqa: D102
        return h - h.mean(in_dims[0], keepdim=True), in_dims[0]


def zero_gate() -> nn.Module:
    class Gate(Between):
        def __init__(self) -> None:
            super().__init__(lambda model, h: h)
            self.gate = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return self.head(h + self.gate * standardised(h))

    return Gate()


def with_hook(register: str, hook: Callable[..., Any]) -> Make:
    def make() -> nn.Module:
        model = chain(nn.Tanh)()
        getattr(model[1], register)(hook)
        return model

    return make


def replaced(name: str, function: Callable[..., Any]) -> Make:
    def make() -> nn.Module:
        model = chain(nn.Tanh)()
        setattr(model[0], name, lambda x: function(F.linear(x, model[0].weight, model[0].bias)))
        return model

    return make


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, weight: Tensor) -> Tensor:  # noqa: D102
        return 2 * weight


def parametrised(register: Callable[[nn.Module], Any]) -> Make:
    def make() -> nn.Module:
        model = chain(nn.Tanh)()
        register(model[0])
        return model

    return make


class Subclass(nn.Tanh):
    """Not what it inherits from."""

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return standardised(x)


class Sequence(nn.Module):
    """A layer over sequences `[B, T, p]` that gives sequences, and a head on their mean."""

    def __init__(self, layer: nn.Module, words: bool = False) -> None:
        super().__init__()
        self.up = nn.Embedding(7, WIDTH) if words else nn.Linear(1, WIDTH)
        self.layer, self.head = layer, nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h = self.up(x if isinstance(self.up, nn.Embedding) else x.unsqueeze(-1))
        h = self.layer(h, h, h) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(h)
        return self.head((h[0] if isinstance(h, tuple) else h).mean(1))


def sequence(layer: Callable[[], nn.Module], words: bool = False) -> Make:
    return lambda: Sequence(layer(), words)


class TiedWords(nn.Module):
    """Embeds and predicts with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(7, WIDTH), nn.Linear(WIDTH, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.words(x).mean(1))


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


def outcome(model: nn.Module, x: Tensor, y: Tensor) -> str:
    try:
        per_example(model, loss, x, y)
    except ValueError:
        return REFUSED
    return {"vectorised": VMAP, "one_at_a_time": SINGLE}.get(gradients._paths[model].__name__, FAST)


def test_the_table_has_at_least_forty_lines() -> None:
    assert len(TABLE) >= 40


def test_what_happens_to_a_model() -> None:
    happened = {name: outcome(built(line), *records(line)) for name, line in TABLE.items()}
    assert happened == {name: line.outcome for name, line in TABLE.items()}


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("function", [lambda model, h: h.cumsum(0), lambda model, h: h.flip(0).cumsum(0).flip(0),
                                      lambda model, h: h * h[:1], lambda model, h: h * h[-1:]])
def test_an_example_that_sees_others_and_is_not_seen_is_found_whichever_row_is_drawn(
        function: Function, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interaction.secrets, "randbelow", lambda size: 0 if place == "first" else size - 1)
    x, y = randn(5, 4), randint(CLASSES, 5)
    with pytest.raises(ValueError, match="its examples interact"):
        per_example(between(function)().double(), loss, x, y)


def clipped_sum(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    torch.manual_seed(0)
    probe = per_example(model, loss, x, y)
    sums = probe.weighted_sum(Flat(CLIP_NORM).coefficients(probe.norms, None))
    return torch.cat([value.flatten() for value in sums.values()])


@pytest.mark.parametrize("name", [name for name, line in TABLE.items() if line.outcome != REFUSED])
def test_a_record_changes_what_is_released_by_the_clip_norm_at_most(name: str) -> None:
    """Also after a batch that holds the record, and far from the weights and records that the model was tried at.

    With one record more, dropout's masks would be others, which is no difference that depends on the record.
    """
    line = TABLE[name]
    model, (x, y) = built(line), records(line)
    if "frozen" not in name:
        model.train("dropout" not in name and name not in ("RNN of two layers", "transformer"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    outlier = x[:1] if line.words else 50 * x[:1]
    for size in (3, len(x)):
        without = clipped_sum(model, x[:size], y[:size])
        together = clipped_sum(model, torch.cat([x[:size], outlier]), torch.cat([y[:size], y[:1]]))
        assert float((together - without).norm()) <= CLIP_NORM * (1 + 1e-5)
        assert torch.allclose(clipped_sum(model, x[:size], y[:size]), without, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, line in TABLE.items() if line.outcome != REFUSED])
def test_released_gradients_are_those_of_one_example_at_a_time(name: str) -> None:
    line = TABLE[name]
    model, (x, y) = built(line).eval(), records(line)
    expected, losses = one_by_one(model, loss, x, y)
    probe = per_example(model, loss, x, y)
    norms = torch.cat([value.flatten(1) for value in expected.values()], 1).norm(dim=1)
    torch.testing.assert_close(probe.norms, norms, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(probe.losses, losses, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("change", [
    lambda model: model.train(), lambda model: model[1].train(), lambda model: setattr(model[1], "training", True),
    lambda model: (setattr(model[1], "running_mean", None), setattr(model[1], "running_var", None)),
    lambda model: model[1].register_forward_hook(lambda m, a, out: standardised(out)),
    lambda model: object.__setattr__(model[1], "forward", standardised),
    lambda model: model[1].requires_grad_(True)])
def test_a_frozen_batch_norm_that_thaws_is_refused_at_the_next_batch(change: Callable[[Any], object]) -> None:
    line = TABLE["frozen batch norm behind frozen layers"]
    model, (x, y) = built(line), records(line)
    assert [outcome(model, x, y) for _ in range(2)] == [FAST, FAST]
    before = {name: value.clone() for name, value in model[1].named_buffers()}
    change(model)
    assert outcome(model, x, y) == REFUSED
    assert all(torch.equal(value, before[name]) for name, value in model[1].named_buffers())


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("name", ["batch norm by hand, dropout beside it", "zero-initialised gate", "largest value"])
def test_a_refusal_looks_at_no_record(name: str, size: int) -> None:
    """Whatever the records are, and however few: only shape and type of `x` count."""
    line = TABLE[name]
    for value in itertools.chain([0.0, float("nan"), 1e30]):
        assert outcome(built(line), torch.full((size, 4), value, dtype=torch.float64), randint(3, size)) == REFUSED


def test_a_refused_model_is_left_as_it_was() -> None:
    for name in ("running centre in a buffer", "largest value", "latest centre", "zero-initialised gate"):
        model = built(TABLE[name])
        before = {key: value.clone() for key, value in model.state_dict().items()}
        assert outcome(model, *records(TABLE[name])) == REFUSED
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        assert getattr(model, "memory", None) is None
    assert CENTRES == []
    assert not LATEST.any()
