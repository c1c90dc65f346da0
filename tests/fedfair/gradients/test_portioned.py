"""A batch in portions has the gradients of the whole, and stays bounded where a model is random."""

from __future__ import annotations

from functools import partial

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedfair.gradients.layer_probe import LayerProbe
from fedfair.gradients.layers import Materialised
from fedfair.gradients.portioned import PortionedProbe
from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat
from fedfair.models.published import loss


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_portions_are_the_whole(records: int, size: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(records, 3, generator=random, dtype=torch.float64)
    y = torch.randint(2, (records,), generator=random)
    model = nn.Linear(3, 2, dtype=torch.float64)
    portions = [partial(per_example, model, loss, x[rows], y[rows])
                for rows in torch.split(torch.arange(records), size)]
    whole, probe = per_example(model, loss, x, y), PortionedProbe(portions)
    assert torch.allclose(probe.norms, whole.norms, rtol=1e-12)
    assert torch.allclose(probe.losses, whole.losses, rtol=1e-12)
    factors = Flat(0.5).coefficients(whole.norms, torch.zeros(records, dtype=torch.long))
    expected = whole.weighted_sum(factors)
    found = probe.weighted_sum(factors)
    assert all(torch.allclose(found[name], expected[name], atol=1e-12) for name in expected)
    assert torch.allclose(probe.dot(expected), whole.dot(expected), atol=1e-12)


def test_a_gradient_that_is_longer_when_it_is_made_again_is_bounded_by_the_norm_that_was_seen() -> None:
    lengths = iter([1.0, 5.0, 0.5])

    def portion() -> LayerProbe:
        """Return the probe of one example, of another length each time."""
        gradient = torch.tensor([[next(lengths)]])
        return LayerProbe([Materialised({"w": gradient})], torch.zeros(1), {"w": gradient[0]})

    probe = PortionedProbe([portion])
    assert probe.weighted_sum(torch.tensor([1.0]))["w"].item() == 1.0
    assert probe.weighted_sum(torch.tensor([1.0]))["w"].item() == 0.5
