"""Weights by the rank of the loss against a plain loop that sorts, and what they change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfair.mechanisms.randomness import poisson
from simulations import Experiment, run
from tests.strategies.oracle import gradients
from tests.strategies.test_contract import experiment as on_digits
from tests.strategies.test_contract import weights


def experiment(share: float = 0.6, **settings: Any) -> Experiment:
    return on_digits("dpsgd-rank", noise_multiplier=0.0, dtype="float64", batch_size=100, options={"share": share},
                     **settings)


def plain(model: nn.Module, parts: list[Any], share: float) -> Tensor:
    """Return the parameters after four steps over batches of 100, each client's part sorted by loss."""
    records = sum(len(part) for part in parts)
    for step in range(4):
        total: Tensor | float = 0.0
        for part in parts:
            rows = torch.isin(part.records, part.records[poisson(0, step, part.records, 100 / records)])
            x, y = part.x[rows], part.y[rows]
            losses = [nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).item() for i in range(len(x))]
            for place, i in enumerate(sorted(range(len(x)), key=losses.__getitem__)):
                g = gradients(model, x[i : i + 1], y[i : i + 1])[0]
                weight = min(1.0, (place + 1) / max(1.0, share * 100 / records * len(part)))
                total = total + weight * g * min(1.0, 1 / float(g.norm()))
        now = nn.utils.parameters_to_vector(model.parameters()).detach()
        nn.utils.vector_to_parameters(now - 0.1 * total / 100, model.parameters())
    return nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("settings", [{"partition": "site", "clients": 1}, {"partition": "site", "clients": 3}, {}])
@pytest.mark.parametrize("nodes", [1, 3])
def test_it_equals_a_plain_loop_that_sorts_each_clients_batch(settings: dict[str, Any], nodes: int) -> None:
    made = experiment(**settings)
    parts = [client.train for client in made.task.clients_data().values()]
    expected = plain(made.task.build_model(), parts, 0.6)
    assert torch.allclose(weights(run(made, nodes=nodes)), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("keyed_by_seed")
def test_a_share_of_zero_is_dpsgd() -> None:
    found = weights(run(experiment(0.0)))
    usual = run(on_digits("dpsgd", noise_multiplier=0.0, dtype="float64", batch_size=100))
    assert torch.allclose(found, weights(usual), rtol=0, atol=1e-12)
    assert not torch.allclose(found, weights(run(experiment(0.6))), rtol=0, atol=1e-4)


def test_weights_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="dpsgd-rank counts all records alike: leave record_weight and class_weights"):
        run(experiment(class_weights={"0": 2.0}))
