"""The papers' listings as plain loops, one number at a time, with noise that is drawn here: as printed and as ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedfair import per_example
from fedfair.mechanisms.clipping import sensitivity
from fedfair.models.published import loss
from simulations import run
from strategies.server.strategy import Strategy
from tests.strategies.oracle import gradients
from tests.strategies.test_contract import experiment, server

GROUPS, STEPS, RATE, NOISE, COUNT_NOISE, CLIP = 10, 6, 0.5, 0.8, 30.0, 0.7


class Step(NamedTuple):
    """Noise of one step of a loop: of the counts, and of the gradient sum, of deviation 1."""

    counts: Tensor
    gradients: Tensor


def noises(counts: tuple[int, ...], parameters: int) -> Iterator[Step]:
    """Yield the noise of all steps, always the same."""
    draws = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        yield Step(COUNT_NOISE * torch.randn(counts, generator=draws, dtype=torch.float64),
                   torch.randn(parameters, generator=draws, dtype=torch.float64))


def method_of(strategy: str, **settings: Any) -> Strategy:
    """Return a method for digits, with all 332 records in every batch."""
    return server(strategy, **{"dtype": "float64", "hidden": (), "model": "logistic", "learning_rate": RATE,
                               "clip_norm": CLIP, "noise_multiplier": NOISE, "batch_size": 332, **settings})


def by_method(method: Strategy, counts: tuple[int, ...]) -> Tensor:
    """Return the parameters to which a method comes with the noise of `noises`, flattened."""
    train, model = method.task.data().train, method.task.build_model()
    method.descent.hold({name: value.detach().clone() for name, value in model.named_parameters()}, method.training)
    sizes = [value.numel() for value in method.descent.weights.values()]
    for noise in noises(counts, sum(sizes)):
        model.load_state_dict(dict(method.descent.weights))
        probe = per_example(model, loss, train.x, train.y)
        query = method.query()
        noisy = None if query is None else query.counts(probe.norms, train.group, GROUPS) + noise.counts
        if noisy is not None and method.counts_first:
            method.learn(noisy, len(train))
        rule = method.rule()
        deviation = method.sum_noise(rule) * sensitivity(rule, GROUPS)
        clipped = probe.weighted_sum(rule.coefficients(probe.norms, train.group))
        parts = zip(clipped.items(), torch.split(noise.gradients, sizes), strict=True)
        method.update({name: value + deviation * part.view_as(value) for (name, value), part in parts})
        if noisy is not None and not method.counts_first:
            method.learn(noisy, len(train))
    return torch.cat([value.flatten() for value in method.descent.weights.values()])


def step_by(model: torch.nn.Module, total: Tensor) -> None:
    """Move the parameters by a noisy mean gradient."""
    with torch.no_grad():
        flat = torch.nn.utils.parameters_to_vector(model.parameters())
        torch.nn.utils.vector_to_parameters(flat - RATE * total, model.parameters())


Bounds = Callable[[list[float], list[float], int], list[float]]


def as_xu_print(m: list[float], o: list[float], b: int) -> list[float]:
    """Xu et al. 2021, Algorithm 2, lines 9 to 12; C0 for what is no bound."""
    total, bounds = sum(m), []
    for m_k, o_k in zip(m, o, strict=True):
        b_k = m_k + o_k
        bound = CLIP * (1 + (m_k / b_k) / (total / b)) if b_k != 0 and total != 0 else math.nan
        bounds.append(bound if 0 < bound < math.inf else CLIP)
    return bounds


def as_esipova_print(m: list[float], o: list[float], b: int) -> list[float]:
    """Esipova et al. 2023, Algorithm 3: whole counts, not below 0; else as printed by Xu et al."""
    return as_xu_print([max(math.floor(x), 0) for x in m], [max(math.floor(x), 0) for x in o], b)


def as_ours(m: list[float], o: list[float], b: int) -> list[float]:
    """As printed, with counts cut at 0, a share of 1 for an empty group, and a sum of 1 at least."""
    m, o = [max(x, 0) for x in m], [max(x, 0) for x in o]
    shares = [m_k / (m_k + o_k) if m_k + o_k > 0 else 1 for m_k, o_k in zip(m, o, strict=True)]
    total = max(sum(m), 1)
    return [CLIP * (1 + share / (total / b)) for share in shares]


def dpsgd_f(model: torch.nn.Module, x: Tensor, y: Tensor, group: list[int], bounds_of: Bounds, at_base: bool
            ) -> tuple[Tensor, list[list[float]]]:
    """Xu et al. 2021, Algorithm 2: return the parameters, flattened, and the clip norms of every step."""
    seen = []
    for noise in noises((2, GROUPS), sum(p.numel() for p in model.parameters())):
        g = gradients(model, x, y)
        norms = [float(row.norm()) for row in g]
        m, o = [0.0] * GROUPS, [0.0] * GROUPS
        for norm, k in zip(norms, group, strict=True):
            m[k] += norm > CLIP
            o[k] += norm <= CLIP
        m = [count + float(drawn) for count, drawn in zip(m, noise.counts[0], strict=True)]
        o = [count + float(drawn) for count, drawn in zip(o, noise.counts[1], strict=True)]
        bounds = bounds_of(m, o, len(x))
        total = torch.zeros_like(g[0])
        for row, norm, k in zip(g, norms, group, strict=True):
            total += row * min(1, bounds[k] / norm)
        total += NOISE * (CLIP if at_base else max(bounds)) * noise.gradients
        step_by(model, total / len(x))
        seen.append(bounds)
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach(), seen


@pytest.mark.parametrize(("options", "bounds_of"), [
    ({"bounds": "printed"}, as_xu_print), ({"bounds": "floored", "noise_at": "base"}, as_esipova_print), ({}, as_ours)])
def test_dpsgd_f_is_each_listing(options: dict[str, Any], bounds_of: Bounds) -> None:
    """Counts of some thirty records have a noise of 30, so that as printed many bounds are refused or below C0."""
    method = method_of("dpsgd-f", options=options)
    train = method.task.data().train
    expected, bounds = dpsgd_f(method.task.build_model(), train.x, train.y, train.group.tolist(), bounds_of,
                               options.get("noise_at") == "base")
    assert torch.allclose(by_method(method, (2, GROUPS)), expected, rtol=0, atol=1e-9)
    flat = [bound for step in bounds for bound in step]
    assert CLIP in flat
    assert (min(flat) < CLIP) == (bounds_of is as_xu_print)


def test_what_bounds_nothing_is_refused_and_its_group_has_the_base_clip_norm() -> None:
    """By the listing, with C0 = 2: -4; no number; an infinite one; 1, below C0; and 4."""
    method = server("dpsgd-f", options={"bounds": "printed"}, clip_norm=2.0)
    above = torch.tensor([-6.0, 0.0, 5.0, -1.0, 12.0] + [0.0] * 5)
    below = torch.tensor([8.0, 0.0, -5.0, 3.0, 0.0] + [4.0] * 5)
    method.learn(torch.stack([above, below]), 10)
    assert method.rule().clip_norms == pytest.approx([2.0, 2.0, 2.0, 1.0, 4.0] + [2.0] * 5)  # type: ignore[attr-defined]
    method.learn(torch.zeros(2, 10), 10)
    assert method.rule().clip_norms == (2.0,) * 10  # type: ignore[attr-defined]


@pytest.mark.parametrize(("longer", "refused"), [(1.0, 0.18), (0.2, 0.74), (0.1, 0.90), (0.0, 0.97)])
def test_some_printed_bound_is_refused_in_this_share_of_steps_at_mnists_settings(longer: float, refused: float) -> None:
    """docs/methods.md: batches of 256, of a class each a tenth but for class 8, counts with noise of deviation 8."""
    sizes = torch.tensor([5923.0, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 500, 5949])
    mean, draws = 256 * sizes / sizes.sum(), torch.Generator().manual_seed(0)
    method, steps, found = server("dpsgd-f", options={"bounds": "printed"}), 3000, 0
    for _ in range(steps):
        counts = torch.poisson(torch.stack([longer * mean, (1 - longer) * mean]), generator=draws)
        method.learn(counts + 8 * torch.randn(2, 10, generator=draws), 256)
        found += 1.0 in method.rule().clip_norms  # type: ignore[attr-defined]
    assert found / steps == pytest.approx(refused, abs=0.025)


def test_the_listing_as_printed_is_proved_and_charged_as_ours_is() -> None:
    """Which bounds were refused follows from counts that are charged."""
    printed, ours = (run(experiment("dpsgd-f", options={"bounds": bounds})).ledger for bounds in ("printed", "paper"))
    assert printed.guarantee == ours.guarantee == "simulated"
    assert printed.epsilon() == pytest.approx(ours.epsilon())


def global_adapt(model: torch.nn.Module, x: Tensor, y: Tensor, z: float, tau: float, eta: float, floor: float
                 ) -> Tensor:
    """Esipova et al. 2023, Algorithm 2, in red: return the parameters, flattened, with Z at least a floor."""
    for noise in noises((1,), sum(p.numel() for p in model.parameters())):
        g = gradients(model, x, y)
        total, above = torch.zeros_like(g[0]), float(noise.counts)
        for row in g:
            norm = float(row.norm())
            total += row * (CLIP / z if norm <= z else CLIP / norm)
            above += norm > tau * z
        step_by(model, (total + NOISE * CLIP * noise.gradients) / len(x))
        z = max(z * math.exp(-eta + above / len(x)), floor)
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize(("min_bound", "floor"), [(0, 0.0), ("clip-norm", CLIP)])
def test_global_adapt_is_the_listing_with_a_bound_that_may_or_may_not_fall_below_the_clip_norm(
        min_bound: float | str, floor: float) -> None:
    """The listing says Z >= C0, and nothing in it keeps Z there."""
    options = {"bound": 1.2, "tau": 9.0, "eta": 0.5, "min_bound": min_bound}
    method = method_of("dpsgd-global-adapt", options=options)
    train = method.task.data().train
    expected = global_adapt(method.task.build_model(), train.x, train.y, 1.2, 9.0, 0.5, floor)
    assert torch.allclose(by_method(method, (1,)), expected, rtol=0, atol=1e-9)
    assert (method.bound == CLIP) == (floor > 0)  # type: ignore[attr-defined]
    assert (method.bound < CLIP) == (floor == 0)  # type: ignore[attr-defined]


def test_a_first_bound_below_the_clip_norm_is_refused_where_none_may_be() -> None:
    with pytest.raises(ValueError, match=r'min_bound is "clip-norm", but bound is 0\.5, below clip_norm 0\.7'):
        method_of("dpsgd-global-adapt", options={"bound": 0.5, "min_bound": "clip-norm"})


def poster(model: torch.nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Bagdasaryan and Shmatikov's poster, Algorithm 1: N(0, sigma^2 I), whatever the clip norm S."""
    for noise in noises((), sum(p.numel() for p in model.parameters())):
        g = gradients(model, x, y)
        total = sum((row * min(1, CLIP / float(row.norm())) for row in g), NOISE * noise.gradients)
        step_by(model, total / len(x))
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def test_dpsgd_with_absolute_noise_is_the_posters_and_is_charged_for_it() -> None:
    method = method_of("dpsgd", options={"noise_scale": "absolute"})
    train = method.task.data().train
    expected = poster(method.task.build_model(), train.x, train.y)
    assert torch.allclose(by_method(method, ()), expected, rtol=0, atol=1e-9)
    settings = {"clip_norm": CLIP, "hidden": (4,)}
    absolute = run(experiment("dpsgd", options={"noise_scale": "absolute"}, **settings)).ledger
    assert absolute.epsilon() == run(experiment("dpsgd", noise_multiplier=1 / CLIP, **settings)).ledger.epsilon()
    assert absolute.epsilon() < run(experiment("dpsgd", **settings)).ledger.epsilon()


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_the_sum_of_a_run_carries_absolute_noise(sync: str) -> None:
    """Its events are those of a run whose noise multiplier is sigma / C."""
    settings: dict[str, Any] = {"clip_norm": 0.25, "sync": sync, "hidden": (4,)}
    absolute = run(experiment("dpsgd", options={"noise_scale": "absolute"}, **settings)).ledger
    relative = run(experiment("dpsgd", noise_multiplier=4.0, **settings)).ledger
    assert absolute.to_dict()["events"] == relative.to_dict()["events"]


@pytest.mark.parametrize(("settings", "message"), [
    ({"target_epsilon": 3.0, "noise_multiplier": 1.0}, "but target_epsilon sets the noise in multiples of the clip"),
    ({"clip_norm": 1e-7}, "noise_multiplier 0.8 is more than 1e\\+06 times clip_norm 1e-07")])
def test_absolute_noise_is_refused_where_it_means_nothing(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method_of("dpsgd", options={"noise_scale": "absolute"}, **settings)
