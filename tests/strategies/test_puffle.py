"""PUFFLE against a plain loop that differentiates its penalty, and how its weight moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simulations import Experiment, run
from strategies.puffle import gaps, slopes
from tests.strategies.test_contract import server, weights
from tests.strategies.two_groups import two_groups

OPTIONS = {"strength": 0.3, "target": 0.02, "alpha": 0.4, "momentum": 0.5, "temperature": 2.0}


def experiment(**settings: Any) -> Experiment:
    made = Experiment(**{**two_groups(), "strategy": "puffle", "split": (0.5, 0.0, 0.5), "model": "mlp", "hidden": (6,),
                         "learning_rate": 0.5, "clip_norm": 0.4, "steps": 8, "noise_multiplier": 0.0,
                         "dtype": "float64", "delta": 1e-4, "options": OPTIONS, **settings})
    return made.model_copy(update={"batch_size": len(made.task.data().train)})


def largest_gap(shares: Tensor, group: Tensor) -> Tensor:
    """Return the largest difference of two groups' mean predictions, over classes."""
    return (shares[group == 0].mean(0) - shares[group == 1].mean(0)).abs().max()


def plain(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, steps: int) -> tuple[Tensor, list[float]]:
    """Return the parameters after full-batch steps without noise, flattened, and the weights of the penalty."""
    parameters, n = list(model.parameters()), len(x)
    strength, velocity, seen = 0.3, 0.0, []
    for _ in range(steps):
        seen.append(strength)
        total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        shares = torch.softmax(2.0 * model(x), 1).detach()
        for i in range(n):
            alone = shares.clone()
            alone[i] = torch.softmax(2.0 * model(x[i][None]), 1)[0]  # all others are constants: the record's own part
            loss = (1 - strength) * nn.functional.cross_entropy(model(x[i][None]), y[i][None])
            loss = loss + strength * n * largest_gap(alone, group)
            g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
            total += g * min(1.0, 0.4 / float(g.norm()))
        gap = float(largest_gap(shares, group))
        velocity = 0.5 * velocity + 0.02 - gap
        strength = min(max(strength - 0.4 * velocity, 0.0), 0.99)
        now = nn.utils.parameters_to_vector(parameters).detach()
        nn.utils.vector_to_parameters(now - 0.5 * total / n, parameters)
    return nn.utils.parameters_to_vector(parameters).detach(), seen


def test_full_batches_without_noise_equal_a_plain_loop_over_the_penalised_loss() -> None:
    made = experiment()
    data = made.task.data().train
    expected, strengths = plain(made.task.build_model(), data.x, data.y, data.group, 8)
    assert max(strengths) > min(strengths) + 0.05
    for clients in (1, 2, 7):
        for partition in ("group", "site"):
            for nodes in (1, clients):
                found = weights(run(made.model_copy(update={"clients": clients, "partition": partition}), nodes=nodes))
                assert torch.allclose(found, expected, rtol=0, atol=1e-10), (clients, partition, nodes)


def gap(strength: float) -> float:
    result = run(experiment(steps=80, clip_norm=2.0, options={**OPTIONS, "strength": strength, "alpha": 0.0}))
    data = result.data.train
    with torch.no_grad():
        return float(largest_gap(torch.softmax(result.model(data.x), 1), data.group))


def test_a_larger_weight_of_the_penalty_leaves_a_smaller_gap() -> None:
    none, much = gap(0.0), gap(0.5)
    assert none > 0.05
    assert much < 0.5 * none


def test_the_epsilon_is_nominal_and_says_why() -> None:
    """One record changes what all others add, by the sizes and signs that it moves: no clip norm bounds that."""
    ledger = run(experiment(noise_multiplier=1.0)).ledger
    assert ledger.guarantee == "nominal"
    assert "depends on the predictions of the whole batch" in str(ledger.nominal)


def test_the_weight_moves_by_noisy_counts_of_any_sign_and_stays_below_one() -> None:
    strategy = server("puffle", options={"strength": 0.5, "alpha": 1.0, "target": 0.0})
    counts = torch.zeros(10, 10)
    counts[0, 3], counts[1, 4], counts[2, 4] = 1e9, 1e9, -1e8
    for _ in range(5):
        strategy.learn(counts, 32)
        assert 0 <= strategy.strength <= 0.99  # type: ignore[attr-defined]
    assert strategy.strength == 0.99  # type: ignore[attr-defined]


def test_a_batch_without_one_group_has_no_gap() -> None:
    only = torch.tensor([[3.0, 2.0], [0.0, 0.0]])
    assert not gaps(only).any()
    assert not slopes(only).any()
    assert not slopes(torch.zeros(2, 2)).any()


def test_a_server_that_is_not_trusted_is_refused() -> None:
    with pytest.raises(ValueError, match="puffle needs sums without noise at the server, but trust is 'local'"):
        run(experiment(trust="local"))
