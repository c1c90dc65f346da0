"""What a host does to the model that it computes with."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.host import Host
from fedfair.models import build


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
