"""The server's weights, and the optimiser that moves them."""

from __future__ import annotations

import torch

from fedfair.models.optimizers import make_optimizer
from strategies.server.server_optimizer import Descent
from strategies.server.training import Training


def test_weights_from_elsewhere_are_stepped_like_those_that_were_held() -> None:
    settings = Training(learning_rate=0.5)
    descent = Descent(lambda parameters: make_optimizer("sgd", parameters, 0.5, 0.0, 0.0))
    descent.hold({"w": torch.zeros(2)}, settings)
    descent.become({"w": torch.ones(2)})
    descent.step({"w": torch.ones(2)})
    assert descent.weights["w"].tolist() == [0.5, 0.5]
    descent.hold({"w": torch.full((2,), 3.0)}, settings)
    descent.step({"w": torch.ones(2)})
    assert descent.weights["w"].tolist() == [2.5, 2.5]
