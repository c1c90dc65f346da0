"""Every risk term of a run against explicit gradients and Hessians of the same batch, for each clip rule."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset
from fedfair.mechanisms.randomness import poisson
from fedfair.risk.derivatives import repeated_samples
from simulations import Experiment, run
from simulations.results.result import Result
from tests.strategies.oracle import gradients

LR, NOISE, CLIP, BATCH, BOUND, VECTORS = 0.2, 1.5, 0.3, 40, 1.2, 90
STRATEGIES = ["sgd", "dpsgd", "dpsgd-f", "naive", "dpsgd-global", "dpsgd-global-adapt", "gs-dp-sgd"]


def experiment(strategy: str, **settings: Any) -> Experiment:
    """Describe a run with risk terms of all records: only the signs of the trace are random."""
    private = {} if strategy == "sgd" else {"noise_multiplier": NOISE, "clip_norm": CLIP}
    options = {"bound": BOUND} if "global" in strategy else {}
    return Experiment(**{"strategy": strategy, "split": (0.2, 0.0, 0.8), "imbalance": "8:12", "hidden": (2,),
                         "batch_size": BATCH, "learning_rate": LR, "dtype": "float64", "sync": "step", "steps": 1,
                         "risk_every": 1, "risk_records": 10_000, "risk_vectors": VECTORS, "options": options,
                         **private, **settings})


def hessians(model: nn.Module, data: GroupedDataset) -> Tensor:
    """Compute every group's mean Hessian explicitly: `[K, P, P]`."""
    named = dict(model.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def loss(flat: Tensor, rows: Tensor) -> Tensor:
        parts = {name: part.view_as(p) for (name, p), part in zip(named.items(), torch.split(flat, sizes), strict=True)}
        return nn.functional.cross_entropy(torch.func.functional_call(model, parts, (data.x[rows],)), data.y[rows])

    weights = torch.cat([p.detach().flatten() for p in named.values()])
    return torch.stack([torch.autograd.functional.hessian(lambda w, k=k: loss(w, data.group == k), weights)
                        for k in range(len(data.names))])


@cache
def at_the_start() -> tuple[Tensor, Tensor, Tensor]:
    """Return every record's gradient, and each group's mean and Hessian, at the weights with which all runs begin."""
    made = experiment("sgd")
    data, model = made.task.data().train, made.task.build_model()
    rows = gradients(model, data.x, data.y)
    return rows, torch.stack([rows[data.group == k].mean(0) for k in range(len(data.names))]), hessians(model, data)


def rule(result: Result, name: str) -> Tensor:
    """Return a number of the first round's clip rule, for each group."""
    rows = result.metrics.query(f"split == 'rule' and round == 1 and metric == {name!r}")
    return torch.tensor(rows["value"].to_numpy())


def clipping(strategy: str, result: Result, norms: Tensor, group: Tensor) -> tuple[list[float], float]:
    """Return each gradient's factor, and the noise's deviation in a coordinate of the sum, as the papers print them."""
    if strategy == "sgd":
        return [1.0] * len(norms), 0.0
    if strategy == "dpsgd":
        return [min(1.0, CLIP / n) for n in norms.tolist()], NOISE * CLIP
    if strategy == "dpsgd-global":
        return [CLIP / BOUND if n <= BOUND else 0.0 for n in norms.tolist()], NOISE * CLIP
    if strategy == "dpsgd-global-adapt":
        return [CLIP / BOUND if n <= BOUND else CLIP / n for n in norms.tolist()], NOISE * CLIP
    clip_norms = rule(result, "clip_norms")
    weights = torch.ones_like(clip_norms) if strategy == "dpsgd-f" else rule(result, "weights")
    longest = weights * clip_norms
    deviation = NOISE * float(longest.norm() if strategy == "gs-dp-sgd" else longest.max())
    return [float(weights[k] * (clip_norms[k] / n).clamp(max=1)) for n, k in zip(norms, group, strict=True)], deviation


def estimated_traces(model: nn.Module, data: GroupedDataset) -> list[tuple[float, float]]:
    """Return the mean over so many samples for each of a group's records, and its standard error, by group."""
    estimates = []
    for k, size in enumerate(data.group_sizes()):
        own = repeated_samples(model, data, (data.group == k).nonzero().flatten(), "0", 0, math.ceil(VECTORS / size))
        estimates.append((float(own.mean()), float(own.std() / len(own) ** 0.5)))
    return estimates


def terms(result: Result) -> dict[str, dict[str, float]]:
    """Return the first round's terms, by group or "all", and name."""
    rows = result.metrics.query("split == 'train' and round == 1")
    return {str(group): dict(zip(own["metric"], own["value"], strict=True)) for group, own in rows.groupby("group")}


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_term_is_what_its_definition_gives_on_the_batch_of_the_step(strategy: str) -> None:
    made = experiment(strategy)
    result, data, model = run(made), made.task.data().train, made.task.build_model()
    rows, slopes, curves = at_the_start()
    risk, sizes = terms(result), torch.bincount(data.group).double()
    apart = strategy == "gs-dp-sgd"
    divisor = BATCH * len(sizes) if apart else BATCH
    rates = (BATCH / sizes).clamp(max=1) if apart else torch.full_like(sizes, BATCH / len(data))

    batch = poisson(made.seed, 0, data.records, rates[data.group])
    taken, group = rows[batch], data.group[batch]
    norms = taken.norm(dim=1)
    factors, deviation = clipping(strategy, result, norms, group)
    clipped_rows = torch.tensor(factors, dtype=torch.float64)[:, None] * taken
    plain, clipped = taken.sum(0) / divisor, clipped_rows.sum(0) / divisor
    shorter = plain * clipped.norm() / plain.norm()

    def change(step: Tensor) -> Tensor:
        """Return the change of each group's loss along a step, to second order: `[K]`."""
        return -LR * slopes @ step + LR**2 / 2 * torch.einsum("p,kpq,q->k", step, curves, step)

    magnitude, direction = change(shorter) - change(plain), change(clipped) - change(shorter)
    noise = LR**2 / 2 * (deviation / divisor) ** 2
    traces, largest = torch.einsum("kpp->k", curves), torch.linalg.eigvalsh(curves)[:, -1]
    estimated = estimated_traces(model, data)
    for k, name in enumerate(data.names):
        found, own = risk[name], group == k
        assert found["risk_magnitude"] == pytest.approx(float(magnitude[k]), rel=1e-8, abs=1e-12)
        assert found["risk_direction"] == pytest.approx(float(direction[k]), rel=1e-8, abs=1e-12)
        assert found["risk_clip"] == pytest.approx(float((magnitude + direction)[k]), rel=1e-8, abs=1e-12)
        assert found["risk_noise"] == pytest.approx(noise * found["hessian_trace"], rel=1e-12)
        assert found["hessian_trace"] == pytest.approx(estimated[k][0], rel=1e-9)
        assert abs(found["hessian_trace"] - float(traces[k])) < 4 * estimated[k][1]
        assert found["risk_noise_se"] == pytest.approx(noise * estimated[k][1], rel=1e-9)
        assert 0.9 * float(largest[k]) < found["largest_eigenvalue"] < float(largest[k]) * (1 + 1e-9)
        lost = float((taken - clipped_rows)[own].norm(dim=1).sum())
        error = (lost + math.sqrt(2 / math.pi) * deviation) / int(own.sum()) if own.any() else math.nan
        assert found["expected_error"] == pytest.approx(error, rel=1e-8, nan_ok=True)
        assert found["gradient_norm_exact"] == pytest.approx(float(slopes[k].norm()), rel=1e-9)

    first, last = int(direction.argmax()), int(direction.argmin())
    along = slopes @ (shorter - clipped)
    found = risk["all"]
    assert found["risk_direction_gap"] == pytest.approx(float(direction[first] - direction[last]), rel=1e-8, abs=1e-12)
    assert found["risk_direction_gap_bound"] == pytest.approx(
        LR * float(along[first] - along[last] - clipped.norm() ** 2), rel=1e-8, abs=1e-12)
    assert found["learning_rate_times_eigenvalue"] == pytest.approx(LR * float(largest.max()), rel=0.01)
    assert_tran(found, magnitude + direction, slopes.norm(dim=1), sizes / sizes.sum(), bound_of(strategy, result))


def bound_of(strategy: str, result: Result) -> float:
    """Return the most that a record adds to the sum, which Tran et al. call the clip norm."""
    if strategy == "sgd":
        return math.inf
    if "global" in strategy or strategy == "dpsgd":
        return CLIP
    weights = 1.0 if strategy == "dpsgd-f" else rule(result, "weights")
    return float((rule(result, "clip_norms") * weights).max())


def assert_tran(found: dict[str, float], risk: Tensor, norms: Tensor, shares: Tensor, clip_norm: float) -> None:
    """Check the largest difference between two groups' clipping risks, and Tran et al.'s condition for their order."""
    a, b = int(risk.argmax()), int(risk.argmin())
    assert found["risk_clip_gap"] == pytest.approx(float(risk[a] - risk[b]), rel=1e-8, abs=1e-12)
    left = norms[a] * (shares[a] - shares[a] ** 2 / 2) - norms[b] * (1 + shares[b] + shares[b] ** 2 / 2)
    assert found["risk_clip_gap_bound"] == pytest.approx(float(LR * norms[a] * (left - 2.5 * clip_norm)), rel=1e-8)
