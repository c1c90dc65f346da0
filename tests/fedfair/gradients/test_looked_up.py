"""Gradients by looked-up weights are those of the rows written out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedfair.gradients.looked_up import LookedUpProbe, Ones
from fedfair.gradients.passes import UnreadableError
from fedfair.gradients.probe import per_example
from fedfair.models.published import loss


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_rows_of_ones_are_rows(seed: int, records: int, columns: int, bias: bool) -> None:
    random = torch.Generator().manual_seed(seed)
    features = 2 * columns  # two for each column, or none
    places = torch.stack([torch.tensor([2 * column, 2 * column + 1, features])[
        torch.randint(3, (records,), generator=random)] for column in range(columns)], 1)
    values, constant = torch.rand(records, generator=random, dtype=torch.float64), 0.7
    x = torch.zeros(records, features + 1, dtype=torch.float64).scatter_(1, places, values[:, None].expand_as(places))
    x[:, features] = constant
    model = nn.Sequential(nn.Linear(features + 1, 3, bias=bias, dtype=torch.float64))
    y = torch.randint(3, (records,), generator=random)
    probe = LookedUpProbe(model, loss, Ones(places.to(torch.uint8), values, features, constant), y)
    plain = per_example(model, loss, x, y)
    assert torch.allclose(probe.norms, plain.norms, rtol=1e-12)
    assert torch.allclose(probe.losses, plain.losses, rtol=1e-12)
    factors = torch.rand(records, generator=random, dtype=torch.float64)
    expected, found = plain.weighted_sum(factors), probe.weighted_sum(factors)
    assert [*found] == [*expected]
    assert all(torch.allclose(found[name], expected[name], atol=1e-12) for name in expected)
    assert torch.allclose(probe.dot(expected), plain.dot(expected), atol=1e-12)


@pytest.mark.parametrize("model", [
    nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).double(), nn.Linear(3, 2).double(),
    nn.Bilinear(3, 3, 2).double()])
def test_another_model_is_not_read(model: nn.Module) -> None:
    if type(model) is nn.Linear and model.weight.dtype == torch.float64:
        model.bias.requires_grad_(False)
    rows = Ones(torch.zeros(1, 1, dtype=torch.uint8), torch.ones(1).double(), 2, 1.0)
    with pytest.raises(UnreadableError):
        LookedUpProbe(model, loss, rows, torch.zeros(1).long())
