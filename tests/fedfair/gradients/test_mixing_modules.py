"""What happens to models that mix examples, or might, and the ground truth of each line of the table.

Whatever is released is bounded: with clip norm C, one record more changes the clipped gradient sum by C at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfair.gradients import interaction
from fedfair.gradients import probe as gradients
from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat
from fedfair.models.published import loss
from tests.fedfair.gradients import mixing_layers
from tests.fedfair.gradients.mixing_layers import CENTRES, CLASSES, Function, between, standardised
from tests.fedfair.gradients.mixing_table import FAST, REFUSED, SINGLE, TABLE, VMAP, built, records
from tests.fedfair.gradients.probing import one_by_one, randint, randn
from tests.for_each import for_each

CLIP_NORM = 1.0


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


@for_each("place", ["first", "last"])
@for_each("function", [lambda model, h: h.cumsum(0), lambda model, h: h.flip(0).cumsum(0).flip(0),
                       lambda model, h: h * h[:1], lambda model, h: h * h[-1:]])
def test_an_example_that_sees_others_and_is_not_seen_is_found_whichever_row_is_drawn(
        function: Function, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interaction.secrets, "randbelow", lambda size: 0 if place == "first" else size - 1)
    x, y = randn(5, 4), randint(CLASSES, 5)
    with pytest.raises(ValueError, match="its examples interact"):
        per_example(between(function)().double(), loss, x, y)


def test_a_loss_that_counts_a_batchs_classes_is_found_whatever_is_drawn() -> None:
    """Once in 8 draws the labels of the other batch, which was this one's reversed, held each class as often."""
    for _ in range(40):
        per_class = nn.Linear(4, 2).double()
        with pytest.raises(ValueError, match="its examples interact"):
            per_example(per_class, lambda out, y: loss(out, y) / (1 + y.double().mean()), randn(5, 4), randint(2, 5))


def test_nothing_is_close_on_a_scale_that_is_no_number() -> None:
    """Where a made-up example has a gradient that is none: its path proves nothing, and another is tried."""
    assert [interaction.is_close(torch.ones(2), torch.ones(2), scale) for scale in (1.0, float("nan"))] == [True, False]


def clipped_sum(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    torch.manual_seed(0)
    probe = per_example(model, loss, x, y)
    sums = probe.weighted_sum(Flat(CLIP_NORM).coefficients(probe.norms, None))
    return torch.cat([value.flatten() for value in sums.values()])


@for_each("name", [name for name, line in TABLE.items() if line.outcome != REFUSED])
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


@for_each("name", [name for name, line in TABLE.items() if line.outcome != REFUSED])
def test_released_gradients_are_those_of_one_example_at_a_time(name: str) -> None:
    line = TABLE[name]
    model, (x, y) = built(line).eval(), records(line)
    expected, losses = one_by_one(model, loss, x, y)
    probe = per_example(model, loss, x, y)
    norms = torch.cat([value.flatten(1) for value in expected.values()], 1).norm(dim=1)
    torch.testing.assert_close(probe.norms, norms, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(probe.losses, losses, rtol=1e-7, atol=1e-9)


@for_each("change", [
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


@for_each("size", [1, 5])
@for_each("name", ["batch norm by hand, dropout beside it", "zero-initialised gate", "largest value"])
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
    assert not mixing_layers.LATEST.any()
