"""RaCO-DP with equalised odds against a plain loop that differentiates the Lagrangian, and what its constraint does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simulations import Experiment, run
from tests.strategies.test_contract import server, weights
from tests.strategies.two_groups import two_groups

OPTIONS = {"gamma": 0.02, "dual_learning_rate": 0.8, "temperature": 3.0, "smoothing": 0.4}
CELLS = [(k, y) for k in (0, 1) for y in (0, 1)]


def experiment(**settings: Any) -> Experiment:
    made = Experiment(**{**two_groups(), "strategy": "raco-odds", "split": (0.5, 0.0, 0.5), "model": "mlp",
                         "hidden": (6,), "learning_rate": 0.5, "clip_norm": 0.4, "steps": 8, "noise_multiplier": 0.0,
                         "dtype": "float64", "delta": 1e-4, "options": OPTIONS, **settings})
    return made.model_copy(update={"batch_size": len(made.task.data().train)})


def gaps_of(shares: Tensor, y: Tensor, group: Tensor) -> Tensor:
    """Return the gap of each group, label and class, by means over the records themselves, `[2, 2, 2]`."""
    found = torch.zeros(2, 2, 2, dtype=torch.float64)
    for k, label in CELLS:
        same = y == label
        found[k, label] = shares[same & (group == k)].mean(0) - shares[same & (group != k)].mean(0)
    return found


def plain(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return the parameters after full-batch steps without noise, flattened, and the multipliers."""
    parameters, n = list(model.parameters()), len(x)
    multipliers = torch.zeros(2, 2, 2, dtype=torch.float64)
    seen: list[Tensor] = []
    for _ in range(steps):
        total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        shares = torch.softmax(3.0 * model(x), 1).detach()
        for i in range(n):
            alone = shares.clone()
            alone[i] = torch.softmax(3.0 * model(x[i][None]), 1)[0]  # all others are constants: the record's own part
            loss = nn.functional.cross_entropy(model(x[i][None]), y[i][None])
            loss = loss + n * (multipliers * gaps_of(alone, y, group)).sum()
            g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
            total += g * min(1.0, 0.4 / float(g.norm()))
        seen.append(gaps_of(shares, y, group))
        ages = [0.4 ** (len(seen) - 1 - step) for step in range(len(seen))]
        smooth = torch.stack([age * gap for age, gap in zip(ages, seen, strict=True)]).sum(0) / sum(ages)
        multipliers = (multipliers + 0.8 * (smooth - 0.02)).clamp(min=0)
        now = nn.utils.parameters_to_vector(parameters).detach()
        nn.utils.vector_to_parameters(now - 0.5 * total / n, parameters)
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


def odds_gap(made: Experiment) -> float:
    """Return the larger difference between groups of the rates of true and false positives."""
    result = run(made)
    data = result.data.train
    with torch.no_grad():
        positive = result.model(data.x).argmax(1).double()
    rates = {(k, y): float(positive[(data.group == k) & (data.y == y)].mean()) for k, y in CELLS}
    return max(abs(rates[0, y] - rates[1, y]) for y in (0, 1))


def test_the_constraint_closes_the_gap_and_a_loose_one_does_nothing() -> None:
    settings = {"steps": 150, "clip_norm": 2.0, "seed": 1}
    free, tight, loose = (odds_gap(experiment(**settings, options={**OPTIONS, "gamma": gamma,
                                                                   "dual_learning_rate": 0.05}))
                          for gamma in (10.0, 0.0, 1.0))
    assert free == loose > 0.05
    assert tight < 0.6 * free


def test_sizes_of_groups_and_labels_are_those_of_noisy_histograms_and_none_divides_by_less_than_one() -> None:
    """They are not public: the mean of the noisy rows over all steps stands for them."""
    strategy = server("raco-odds", options={"gamma": 0.0, "dual_learning_rate": 1.0, "smoothing": 0.5})
    counts = torch.zeros(10, 10, 10)
    counts[0, 3, 3], counts[1, 3, 3], counts[2, 5, 1] = 4.0, 8.0, -50.0
    strategy.learn(counts.view(100, 10), 32)
    strategy.learn(torch.zeros(100, 10), 32)
    own, others = strategy._batch_sizes()  # type: ignore[attr-defined]
    assert float(own[0, 3]) == pytest.approx(2)
    assert float(others[0, 3]) == pytest.approx(4)
    assert float(own[2, 5]) == float(others[0, 5]) == 1
    multipliers = strategy.multipliers  # type: ignore[attr-defined]
    assert 0 <= float(multipliers.min()) <= float(multipliers.max()) <= 2


def test_weights_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="raco-odds counts all records alike: leave record_weight and class_weights"):
        run(experiment(class_weights={"0": 2.0}))
