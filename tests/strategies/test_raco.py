"""RaCO-DP against a plain loop that differentiates the Lagrangian, and what its constraint does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simulations import Experiment, run
from strategies.server.population import Population, differences
from tests.strategies.test_contract import server, weights
from tests.strategies.two_groups import two_groups

OPTIONS = {"gamma": 0.02, "dual_learning_rate": 0.8, "temperature": 3.0, "smoothing": 0.4}


def experiment(**settings: Any) -> Experiment:
    made = Experiment(**{**two_groups(), "strategy": "raco", "split": (0.5, 0.0, 0.5), "model": "mlp", "hidden": (6,),
                         "learning_rate": 0.5, "clip_norm": 0.4, "steps": 8, "noise_multiplier": 0.0,
                         "dtype": "float64", "delta": 1e-4, "options": OPTIONS, **settings})
    return made.model_copy(update={"batch_size": len(made.task.data().train)})


def lagrangian_of(model: nn.Module, x: Tensor, y: Tensor, k: int, multipliers: Tensor, sizes: list[int]) -> Tensor:
    """One record's part of N times the Lagrangian: its loss, and its share of each gap times its multiplier."""
    scores = model(x[None])
    shares = torch.softmax(3.0 * scores, 1)[0]
    total = nn.functional.cross_entropy(scores, y[None])
    for group in range(len(sizes)):
        part = 1 / sizes[group] if group == k else -1 / (sum(sizes) - sizes[group])
        total = total + sum(sizes) * part * (multipliers[group] @ shares)
    return total


def plain(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return the parameters after full-batch steps without noise, flattened, and the multipliers."""
    sizes, parameters = group.bincount().tolist(), list(model.parameters())
    multipliers = torch.zeros(2, 2, dtype=torch.float64)
    seen: list[Tensor] = []
    for _ in range(steps):
        shares = torch.softmax(3.0 * model(x), 1).detach()
        total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        for i in range(len(x)):
            loss = lagrangian_of(model, x[i], y[i], int(group[i]), multipliers, sizes)
            g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
            total += g * min(1.0, 0.4 / float(g.norm()))
        gaps = torch.stack([shares[group == k].mean(0) - shares[group != k].mean(0) for k in (0, 1)])
        seen.append(gaps)
        ages = [0.4 ** (len(seen) - 1 - step) for step in range(len(seen))]
        smooth = torch.stack([age * gap for age, gap in zip(ages, seen, strict=True)]).sum(0) / sum(ages)
        multipliers = (multipliers + 0.8 * (smooth - 0.02)).clamp(min=0)
        now = nn.utils.parameters_to_vector(parameters).detach()
        nn.utils.vector_to_parameters(now - 0.5 * total / len(x), parameters)
    return nn.utils.parameters_to_vector(parameters).detach(), multipliers


def test_full_batches_without_noise_equal_a_plain_loop_over_the_lagrangian() -> None:
    made = experiment()
    data = made.task.data().train
    expected, multipliers = plain(made.task.build_model(), data.x, data.y, data.group, 8)
    assert float(multipliers.max()) > 0.1
    for clients in (1, 2, 7):
        for partition in ("group", "site"):
            for nodes in (1, clients):
                found = weights(run(made.model_copy(update={"clients": clients, "partition": partition}), nodes=nodes))
                assert torch.allclose(found, expected, rtol=0, atol=1e-10), (clients, partition, nodes)


def gap(made: Experiment) -> float:
    result = run(made)
    data = result.data.train
    with torch.no_grad():
        positive = result.model(data.x).argmax(1).double()
    return float((positive[data.group == 0].mean() - positive[data.group == 1].mean()).abs())


def test_the_constraint_closes_the_gap_and_a_loose_one_does_nothing() -> None:
    settings = {"steps": 150, "clip_norm": 2.0}
    free, tight, loose = (gap(experiment(**settings, options={**OPTIONS, "gamma": gamma, "dual_learning_rate": 0.05}))
                          for gamma in (10.0, 0.0, 1.0))
    assert free == loose > 0.1
    assert tight < 0.5 * free


def test_multipliers_follow_from_public_sizes_and_never_fall_below_zero() -> None:
    """Hazard 2: a noisy histogram of any sign; the batch's realised size is not used."""
    strategy = server("raco", options={"gamma": 0.1, "dual_learning_rate": 2.0})
    counts = torch.zeros(10, 10)
    counts[0, 3], counts[1, 4] = 5.0, -50.0
    strategy.learn(counts, 32)
    first, others = strategy.population.by_group[0], strategy.population.records - strategy.population.by_group[0]
    q = 32 / strategy.population.records
    multipliers = strategy.multipliers  # type: ignore[attr-defined]
    assert float(multipliers[0, 3]) == pytest.approx(2 * (5 / (q * first) - 0.1))
    assert float(multipliers[0, 4]) == pytest.approx(max(0.0, 2 * (50 / (q * others) - 0.1)))
    assert float(multipliers[1, 4]) == 0
    assert float(multipliers.min()) == 0


def test_weights_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="raco counts all records alike: leave record_weight and class_weights out"):
        run(experiment(class_weights={"0": 2.0}))


def test_a_group_is_compared_with_the_mean_of_all_others_and_needs_some() -> None:
    sizes = Population(("a", "b", "c", "d"), ((2, 0, 3, 0), (2, 0, 0, 1)), (0, 0), ("0", "1"))
    assert differences("raco", sizes).tolist() == [
        pytest.approx([1 / 4, -1 / 4, -1 / 4, -1 / 4]), [0] * 4, pytest.approx([-1 / 5, -1 / 5, 1 / 3, -1 / 5]),
        pytest.approx([-1 / 7, -1 / 7, -1 / 7, 1])]
    with pytest.raises(ValueError, match=r"raco compares groups, but only 1 has training records here \(a, b\)"):
        differences("raco", Population(("a", "b"), ((2, 0),), (0,), ("0", "1")))
