"""One of clipping's two errors alone: the steps themselves, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simulations import Experiment, run
from tests.strategies.oracle import gradients

BOTH = ["direction-error", "magnitude-error"]


def experiment(strategy: str, **settings: Any) -> Experiment:
    return Experiment(**{"strategy": strategy, "split": (0.1, 0.0, 0.9), "hidden": (6,), "learning_rate": 0.5,
                         "clip_norm": 0.4, "steps": 3, "batch_size": 180, "dtype": "float64", **settings})


@pytest.mark.parametrize("strategy", BOTH)
def test_steps_equal_a_plain_loop_over_full_batches(strategy: str) -> None:
    made = experiment(strategy)
    data, model = made.task.data().train, made.task.build_model()
    assert len(data) == 180
    for _ in range(3):
        rows = gradients(model, data.x, data.y)
        plain = rows.mean(0)
        clipped = torch.stack([row * min(1.0, 0.4 / float(row.norm())) for row in rows]).mean(0)
        step = (clipped * plain.norm() / clipped.norm() if strategy == "direction-error"
                else plain * clipped.norm() / plain.norm())
        assert float(torch.cosine_similarity(plain, clipped, dim=0)) < 0.999
        with torch.no_grad():
            for p, change in zip(model.parameters(), torch.split(step, [p.numel() for p in model.parameters()]),
                                 strict=True):
                p -= 0.5 * change.view_as(p)
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    for nodes in (1, 3):
        result = run(made, nodes=nodes)
        found = torch.cat([p.detach().flatten() for p in result.model.parameters()])
        assert torch.allclose(found, expected, rtol=0, atol=1e-10)
        assert result.ledger.guarantee == "none"


@pytest.mark.parametrize("strategy", BOTH)
def test_empty_batches_make_no_step_and_nothing_is_claimed(strategy: str) -> None:
    made = experiment(strategy, batch_size=1, steps=30)
    result = run(made)
    assert all(bool(p.isfinite().all()) for p in result.model.parameters())
    assert result.ledger.epsilon() == float("inf")


@pytest.mark.parametrize("strategy", BOTH)
def test_local_epochs_and_noise_at_the_clients_are_refused(strategy: str) -> None:
    with pytest.raises(ValueError, match="only with sync = 'step'"):
        run(experiment(strategy, sync="epoch"))
    with pytest.raises(ValueError, match="trust is 'local': take 'central'"):
        run(experiment(strategy, trust="local"))
