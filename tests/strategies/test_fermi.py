"""DP-FERMI against a plain loop that differentiates its saddle function, and what its penalty does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simulations import Experiment, run
from tests.strategies.test_contract import server, weights
from tests.strategies.two_groups import two_groups

OPTIONS = {"penalty": 1.5, "dual_learning_rate": 0.3, "bound": 1.4155}


def experiment(**settings: Any) -> Experiment:
    made = Experiment(**{**two_groups(), "strategy": "fermi", "split": (0.5, 0.0, 0.5), "model": "mlp", "hidden": (6,),
                         "learning_rate": 0.5, "clip_norm": 0.4, "steps": 8, "noise_multiplier": 0.0,
                         "dtype": "float64", "delta": 1e-4, "options": OPTIONS, **settings})
    return made.model_copy(update={"batch_size": len(made.task.data().train)})


def psi(prediction: Tensor, k: int, w: Tensor, shares: Tensor) -> Tensor:
    """Equation 4 of the paper with its traces, for one record: W `[K, C]`."""
    group = torch.nn.functional.one_hot(torch.tensor(k), len(shares)).to(w)
    outer = torch.diag(prediction)
    return (-torch.trace(w @ outer @ w.T) + 2 * torch.trace(w @ torch.outer(prediction, group)
                                                             @ torch.diag(shares ** -0.5)) - 1)


def plain(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, steps: int) -> tuple[Tensor, list[float]]:
    """Return the parameters after full-batch steps without noise, flattened, and the norms of W before projection."""
    shares, parameters = group.bincount().double() / len(group), list(model.parameters())
    w, lengths = shares.sqrt()[:, None].repeat(1, 2), []
    for _ in range(steps):
        total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
        for i in range(len(x)):
            scores = model(x[i][None])
            penalty = psi(scores.softmax(1)[0], int(group[i]), w, shares)
            loss = nn.functional.cross_entropy(scores, y[i][None]) + 1.5 * penalty
            g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
            total += g * min(1.0, 0.4 / float(g.norm()))
        free = w.clone().requires_grad_()
        predictions = model(x).softmax(1).detach()
        mean = torch.stack([psi(p, int(k), free, shares) for p, k in zip(predictions, group, strict=True)]).mean()
        w = w + 0.3 * torch.autograd.grad(mean, free)[0]
        lengths.append(float(w.norm()))
        w = w * min(1.0, 1.4155 / lengths[-1])
        now = nn.utils.parameters_to_vector(parameters).detach()
        nn.utils.vector_to_parameters(now - 0.5 * total / len(x), parameters)
    return nn.utils.parameters_to_vector(parameters).detach(), lengths


def test_full_batches_without_noise_equal_a_plain_loop_over_the_saddle_function() -> None:
    made = experiment()
    data = made.task.data().train
    expected, lengths = plain(made.task.build_model(), data.x, data.y, data.group, 8)
    assert min(lengths) < 1.4155 < max(lengths)
    for clients in (1, 2, 7):
        for partition in ("group", "site"):
            for nodes in (1, clients):
                found = weights(run(made.model_copy(update={"clients": clients, "partition": partition}), nodes=nodes))
                assert torch.allclose(found, expected, rtol=0, atol=1e-10), (clients, partition, nodes)


def dependence(made: Experiment) -> float:
    """Return the chi-square dependence of soft predictions on the group, from their joint distribution."""
    result = run(made)
    data = result.data.train
    with torch.no_grad():
        predictions = result.model(data.x).softmax(1)
    joint = torch.stack([predictions[data.group == k].sum(0) for k in (0, 1)]) / len(data)
    return float((joint.square() / torch.outer(joint.sum(1), joint.sum(0))).sum() - 1)


def test_a_larger_penalty_leaves_less_dependence() -> None:
    settings = {"steps": 100, "clip_norm": 2.0}
    none, some, much = (dependence(experiment(**settings, options={"penalty": penalty})) for penalty in (0.0, 1.0, 8.0))
    assert none > 0.01
    assert much < 0.3 * none
    assert much < some < none


def test_w_moves_by_the_public_size_of_a_batch_and_stays_within_its_bound() -> None:
    """Hazard 2: a noisy histogram of any sign."""
    strategy = server("fermi", options={"dual_learning_rate": 0.5, "bound": 4.0})
    share = strategy.population.by_group[2] / strategy.population.records
    counts = torch.zeros(10, 10)
    counts[2, 3] = 8.0
    strategy.learn(counts, 32)
    dual = strategy.dual  # type: ignore[attr-defined]
    assert float(dual[2, 3]) == pytest.approx(share**0.5 + 0.5 * (2 * 0.25 / share**0.5 - 2 * share**0.5 * 0.25))
    for _ in range(50):
        strategy.learn(torch.full((10, 10), -1e6), 32)
    assert float(strategy.dual.norm()) == pytest.approx(4.0)  # type: ignore[attr-defined]


def test_weights_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="fermi counts all records alike: leave record_weight and class_weights out"):
        run(experiment(class_weights={"0": 2.0}))
