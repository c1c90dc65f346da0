"""Hazard 33: norms whose squares under- or overflow are right, so that no record passes the clip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfair.gradients.layer_gradients import Lookups, Materialised, OuterProducts, Turned, norms
from fedfair.gradients.layer_probe import LayerProbe
from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat, GlobalAdapt, PerGroup, Reweighted, sensitivity
from fedfair.models.published import loss
from tests.fedfair.gradients.probing import made, randint, randn
from tests.for_each import for_each

NAMES = {"weight": "weight"}
SIZES = [(1e-30, 1e25), (1e25, 1e-30), (1e-23, 1e19), (1e-25, 1e20), (1e-22, 1e-3), (1e18, 1e18), (1e19, 1e-3),
         (1e-38, 1e36), (1.0, 1.0), (1e-15, 1e-15)]


def layers(positions: int, inputs: float, deltas: float) -> list[OuterProducts | Materialised | Turned | Lookups]:
    """Return the same kind of gradients in every form."""
    a = (inputs * randn(3, positions, 40)).float()
    d = (deltas * randn(3, positions, 6, seed=1)).float()
    products = OuterProducts(NAMES, torch.Size((6, 40)), a, d)
    turned = Turned(OuterProducts(NAMES, torch.Size((6, 4, 10)), a, d), "weight", (0, 2, 1))
    return [products, turned, OuterProducts({**NAMES, "bias": "bias"}, torch.Size((6, 40)), a, d),
            Materialised({"weight": torch.bmm(d.transpose(1, 2), a)}),
            Lookups("weight", torch.Size((5, 6)), randint(5, 3, positions), d)]


def length(layer: Any, weights: Tensor) -> Tensor:
    """Return the norm of a weighted sum of gradients."""
    return torch.cat([value.double().flatten() for value in layer.weighted_sum(weights).values()]).norm()


@for_each(("inputs", "deltas"), SIZES)
def test_norms_are_those_of_what_is_summed_and_no_record_passes_the_clip(inputs: float, deltas: float) -> None:
    for layer in [*layers(1, inputs, deltas), *layers(4, inputs, deltas)]:
        found = norms([layer], torch.zeros(3))
        alone = torch.stack([length(layer, row) for row in torch.eye(3)])
        torch.testing.assert_close(found.double(), alone, rtol=1e-5, atol=1e-40)
        for clip_norm in (1e-3, 1.0):
            coefficients = Flat(clip_norm).coefficients(found, torch.zeros(3, dtype=torch.long))
            for row in torch.eye(3)[found.isfinite()]:
                assert float(length(layer, row * coefficients)) <= 1.001 * clip_norm, (layer, clip_norm)


def test_positions_that_cancel_and_overflow_leave_room_for_the_rounding_of_the_sum() -> None:
    for size in (1e15, 1e18, 1e19):
        inputs = torch.full((2, 40, 30), size)
        deltas = randn(2, 40, 6).float()
        deltas[:, -1] = -deltas[:, :-1].sum(1)
        layer = OuterProducts(NAMES, torch.Size((6, 30)), inputs, deltas)
        coefficients = (1e-3 / norms([layer], torch.zeros(2))).clamp(max=1)
        for row in torch.eye(2):
            added = layer.weighted_sum(row * coefficients)["weight"].double().norm()
            assert float(added) <= 1.001e-3


@pytest.mark.parametrize("widths", [(1,), (7, 3)])
def test_one_layer_that_underflows_beside_one_that_does_not(widths: tuple[int, ...]) -> None:
    ordinary = Materialised({"bias": torch.full((2, *widths), 1e-3)})
    hidden = OuterProducts(NAMES, torch.Size((6, 40)), torch.full((2, 1, 40), 1e-25), torch.full((2, 1, 6), 1e19 * 1e5))
    found = norms([ordinary, hidden], torch.zeros(2))
    assert float(found[0]) == pytest.approx((240**0.5) * 1e-1, rel=1e-3)


@for_each("make", [lambda: nn.Linear(3, 1000),
                   lambda: nn.Sequential(nn.Linear(3, 8, bias=False), nn.ReLU(), nn.Linear(8, 10))])
@for_each("size", [1e-40, 1e-30, 1e10, 1e18, 3e19, 1e30])
def test_records_of_every_size_are_clipped_in_whole_models(make: Callable[[], nn.Module], size: float) -> None:
    model, x, y = made(make).float(), torch.full((2, 3), size), torch.tensor([0, 1])
    probe = per_example(model, loss, x, y)
    assert bool(probe.norms.isfinite().all())
    for row in torch.eye(2):
        sums = probe.weighted_sum(row * Flat(1e-3).coefficients(probe.norms, y))
        assert float(torch.cat([v.double().flatten() for v in sums.values()]).norm()) <= 1.001e-3


SIZE = st.floats(-44, 38).map(lambda power: 10.0**power)
RULES = [Flat, lambda number: PerGroup((number,)), lambda number: GlobalAdapt(number, number),
         lambda number: Reweighted((number,), (1.0,)), lambda number: Reweighted((1.0,), (number,))]


@given(inputs=SIZE, weights=SIZE, number=st.floats(-30, 15).map(lambda power: 10.0**power),
       make=st.sampled_from(RULES), deep=st.booleans(), seed=st.integers(0, 9))
def test_no_rule_lets_more_through_than_it_says_wherever_float32_loses_digits(
        inputs: float, weights: float, number: float, make: Callable[[float], Any], deep: bool, seed: int) -> None:
    model = made(lambda: nn.Sequential(nn.Linear(3, 8, bias=False), nn.Tanh(), nn.Linear(8, 10)) if deep
                 else nn.Linear(3, 10)).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(weights)
    probe = per_example(model, loss, (inputs * randn(2, 3, seed=seed)).float(), torch.tensor([0, 1]))
    rule, groups = make(number), torch.zeros(2, dtype=torch.long)
    for row in torch.eye(2)[probe.norms.isfinite()]:
        sums = probe.weighted_sum(row * rule.coefficients(probe.norms, groups))
        added = torch.cat([value.double().flatten() for value in sums.values()]).norm()
        assert float(added) <= 1.00001 * sensitivity(rule, 1)


@pytest.mark.parametrize(("inputs", "delta"), [(3e38, 1e-44), (1e37, 3e-43)])
def test_a_factor_that_float32_has_lost_the_digits_of_adds_nothing(inputs: float, delta: float) -> None:
    """Its gradient is some 3e-6 long; a third of the delta was rounded up to more than a third."""
    layer = OuterProducts(NAMES, torch.Size((6, 40)), torch.full((1, 1, 40), inputs), torch.full((1, 1, 6), delta))
    probe = LayerProbe([layer], torch.zeros(1), {"weight": torch.zeros(6, 40)})
    for share in (0.3, 0.4, 0.6, 0.9):
        clip_norm = float(probe.norms) * share
        sums = probe.weighted_sum(Flat(clip_norm).coefficients(probe.norms, torch.zeros(1, dtype=torch.long)))
        assert float(sums["weight"].double().norm()) <= 1.00001 * clip_norm


def test_ordinary_norms_are_computed_in_the_dtype_of_the_gradients() -> None:
    """Published numbers hang on their last bits."""
    def plain(layer: OuterProducts) -> Tensor:
        """Return the norms as products of two."""
        return (torch.linalg.vector_norm(layer.inputs, dim=(1, 2)).hypot(torch.ones(9))
                * torch.linalg.vector_norm(layer.deltas, dim=(1, 2)))

    a, d = randn(9, 1, 40).float(), randn(9, 1, 6).float()
    layer = OuterProducts({**NAMES, "bias": "bias"}, torch.Size((6, 40)), a, d)
    assert torch.equal(norms([layer], torch.zeros(9)), plain(layer).square().sqrt())
