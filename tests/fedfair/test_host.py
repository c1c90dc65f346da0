"""What a host does to the model that it computes with, and which batch it keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.host import Host
from fedfair.models import build
from fedfair.noise import Trust
from fedfair.rounds import Round


class Viewed(nn.Module):
    """A model that only works while its convolution's output lies in order."""

    def __init__(self, kernel: int, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, 3, kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Two of the convolution's outputs for each example: `[B, 2]`."""
        return self.convolution(x).view(len(x), -1)[:, :2]


def hosted(model: nn.Module, x: Tensor) -> None:
    """Compute with the model twice, at weights that lie in order."""
    zeros = torch.zeros(len(x), dtype=torch.long)
    data = GroupedDataset(x, zeros, zeros, ("everybody",), 2)
    host = Host({0: Parts(data, data, data)}, model, "cpu")
    for _ in range(2):
        host.evaluate({name: value.detach().clone().contiguous() for name, value in model.named_parameters()}, "test",
                      gradient_norms=True)


@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_model_in_order_stays_so(kernel: int, channels: int) -> None:
    model = Viewed(kernel, channels)
    before = model.convolution.weight.stride()
    hosted(model, torch.randn(4, channels, 3, 3))
    assert model.convolution.weight.stride() == before


def test_a_model_with_its_channels_last_stays_so() -> None:
    model, x = build("lenet", (), (1, 28, 28), 2, 0, torch.float32), torch.randn(4, 1, 28, 28)
    assert isinstance(model, nn.Sequential)
    before = [parameter.stride() for parameter in model.parameters()]
    hosted(model, x)
    assert [parameter.stride() for parameter in model.parameters()] == before
    for part in (model[:1], model[:4]):
        assert part(x).is_contiguous(memory_format=torch.channels_last)
        assert not part(x).is_contiguous()


def test_a_batch_is_kept_for_equal_weights_in_one_round_alone() -> None:
    """The weights are those of a server in this process, which changes them in place."""
    model, zeros = build("logistic", (), (3,), 2, 0, torch.float64), torch.zeros(40, dtype=torch.long)
    data = GroupedDataset(torch.randn(40, 3, dtype=torch.float64), zeros, zeros, ("everybody",), 2)
    host = Host({0: Parts(data, data, data)}, model, "cpu")
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    first = Round(0, 3, (0.5,), 1.0, 0.0, Trust.CENTRAL, 1)
    kept = host.batch(weights, first)
    assert host.batch({name: value.clone() for name, value in weights.items()}, first) is kept
    for other in (replace(first, step=4), replace(first, seed=1), replace(first, rates=(0.9,))):
        assert host.batch(weights, other) is not kept
    kept = host.batch(weights, first)
    before = kept.probe.norms.clone()
    next(iter(weights.values())).add_(1.0)
    assert not torch.equal(host.batch(weights, first).probe.norms, before)
