"""Clip rules: the formulas of the papers, and that no record adds more than the stated sensitivity."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.mechanisms.clipping import (
    CLIP_RULES,
    Automatic,
    ClipRule,
    Flat,
    Global,
    GlobalAdapt,
    PerGroup,
    Reweighted,
    Soft,
    Unclipped,
    sensitivity,
)
from tests.for_each import for_each

K = 3
bounds = st.floats(1e-3, 1e3)
by_group = st.tuples(*[bounds] * K)
norms = st.one_of(st.just(0.0), st.floats(0, 10), st.floats(0, 1e150), st.sampled_from([5e-324, 1e-200, 1e150]))
records = st.tuples(norms, st.integers(0, K - 1))
RULES: dict[str, st.SearchStrategy[ClipRule]] = {
    "none": st.just(Unclipped()),
    "flat": st.builds(Flat, bounds),
    "per-group": st.builds(PerGroup, by_group),
    "global": st.builds(Global, bounds, bounds),
    "global-adapt": st.builds(GlobalAdapt, bounds, bounds),
    "reweighted": st.builds(Reweighted, by_group, by_group),
    "soft": st.builds(Soft, bounds),
    "automatic": st.builds(Automatic, bounds, bounds),
}
EXAMPLES: list[ClipRule] = [
    Unclipped(), Flat(0.5), PerGroup((0.5, 2.0, 8.0)), Global(0.5, 4.0), GlobalAdapt(0.5, 4.0),
    Reweighted((0.5, 2.0, 8.0), (0.1, 1.0, 7.0)), Soft(0.5), Automatic(0.5, 1e-5)]


def slow(rule: ClipRule, norm: float, group: int) -> float:
    """One coefficient, as methods.md writes it."""
    match rule:
        case Unclipped():
            return 1.0
        case Flat(c):
            return 1.0 if norm <= c else c / norm
        case PerGroup(cs):
            return 1.0 if norm <= cs[group] else cs[group] / norm
        case Global(c, z):
            return c / z if norm <= z else 0.0
        case GlobalAdapt(c, z):
            return c / z if norm <= z else c / norm
        case Reweighted(cs, ws):
            return ws[group] * (1.0 if norm <= cs[group] else cs[group] / norm)
        case Soft(c):
            return c * math.tanh(norm / c) / norm if norm > 1e-9 * c else 1.0  # a smaller one has few digits left
        case Automatic(c, gamma):
            return c / (norm + gamma)
    raise AssertionError


def clipped_sum(rule: ClipRule, gradients: Tensor, groups: Tensor) -> Tensor:
    return rule.coefficients(gradients.norm(dim=1), groups) @ gradients


def one_per_group(norm: float) -> tuple[Tensor, Tensor]:
    return torch.full((K,), norm, dtype=torch.float64), torch.arange(K)


def test_every_registered_rule_is_tested_here() -> None:
    assert set(RULES) == set(CLIP_RULES)
    assert {CLIP_RULES.name_of(rule) for rule in EXAMPLES} == set(CLIP_RULES)


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(sorted(RULES)).flatmap(lambda name: RULES[name]), st.lists(records, max_size=5))
@example(GlobalAdapt(1.0, 1e-3), [(0.0, 0), (1e-3, 1), (1e-2, 2)])  # hazard 17: a collapsed Z
@example(Global(1.0, 1e-3), [(0.0, 0), (1e-3, 1), (2.0, 2)])
def test_coefficients_are_those_of_the_papers(rule: ClipRule, batch: list[tuple[float, int]]) -> None:
    found = rule.coefficients(torch.tensor([n for n, _ in batch], dtype=torch.float64),
                              torch.tensor([k for _, k in batch], dtype=torch.long))
    assert found.tolist() == pytest.approx([slow(rule, n, k) for n, k in batch], rel=1e-12)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(sorted(RULES)).flatmap(lambda name: RULES[name]), st.lists(records, max_size=4), records,
       st.integers(0, 10**6))
def test_adding_or_removing_a_record_changes_the_sum_by_at_most_its_groups_sensitivity(
        rule: ClipRule, others: list[tuple[float, int]], one: tuple[float, int], seed: int) -> None:
    """Hazards 1, 9 and 17."""
    directions = torch.randn(len(others) + 1, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    directions /= directions.norm(dim=1, keepdim=True)
    gradients = directions * torch.tensor([n for n, _ in [*others, one]], dtype=torch.float64)[:, None]
    groups = torch.tensor([k for _, k in [*others, one]])
    change = clipped_sum(rule, gradients, groups) - clipped_sum(rule, gradients[:-1], groups[:-1])
    largest = max(rule.group_sensitivities(K), default=0)
    assert float(change.norm()) <= rule.group_sensitivities(K)[one[1]] * (1 + 1e-12) + 1e-12 * largest * len(groups)


@for_each("rule", EXAMPLES[1:])
def test_the_sensitivity_is_reached(rule: ClipRule) -> None:
    """No more noise than the rule needs: some record of each group adds what is stated, or comes as near as asked."""
    reached = torch.zeros(K, dtype=torch.float64)
    for norm in (0.5, 2.0, 4.0, 8.0, 100.0):
        norms, groups = one_per_group(norm)
        reached = torch.maximum(reached, norms * rule.coefficients(norms, groups))
    assert reached.tolist() == pytest.approx(rule.group_sensitivities(K))


@given(st.sampled_from(sorted(RULES)).flatmap(lambda name: RULES[name]))
@settings(deadline=None, max_examples=40)
def test_the_noise_uses_the_largest_sensitivity_over_all_groups(rule: ClipRule) -> None:
    """Hazard 1: over the groups there are, not over those that a batch holds."""
    by_group = rule.group_sensitivities(K)
    assert len(by_group) == K
    assert sensitivity(rule, K) == max(by_group)


def test_a_groups_bound_counts_although_the_batch_holds_none_of_its_records() -> None:
    assert sensitivity(PerGroup((1.0, 9.0)), 2) == 9.0
    assert sensitivity(Reweighted((0.5, 2.0, 0.5), (1.0, 1.0, 6.0)), 3) == 3.0


def test_without_clipping_nothing_bounds_a_record() -> None:
    assert math.isinf(sensitivity(Unclipped(), 2))


@for_each("rule", EXAMPLES)
def test_a_zero_gradient_stays_zero(rule: ClipRule) -> None:
    """Hazard 9: no division by its norm."""
    norms, groups = one_per_group(0.0)
    coefficients = rule.coefficients(norms, groups)
    assert bool(coefficients.isfinite().all())
    assert not (coefficients * norms).any()


@for_each("bad", [math.nan, math.inf])
@for_each("rule", EXAMPLES)
def test_a_gradient_that_is_not_finite_never_passes_unclipped(rule: ClipRule, bad: float) -> None:
    """Hazard 9: what is scaled stays not a number, so that the node can leave it out."""
    norms, groups = one_per_group(bad)
    scaled = rule.coefficients(norms, groups) * norms
    assert not bool(scaled.isfinite().any())


@for_each("rule", EXAMPLES[1:])
def test_a_nan_norm_gives_a_nan_coefficient_for_its_own_record_alone(rule: ClipRule) -> None:
    norms = torch.tensor([1.0, math.nan, 2.0], dtype=torch.float64)
    assert rule.coefficients(norms, torch.arange(3)).isnan().tolist() == [False, True, False]


@for_each("dtype", [torch.float32, torch.float64])
@for_each("rule", EXAMPLES)
def test_an_empty_batch_has_no_coefficients_and_the_dtype_is_kept(rule: ClipRule, dtype: torch.dtype) -> None:
    empty = rule.coefficients(torch.zeros(0, dtype=dtype), torch.zeros(0, dtype=torch.long))
    assert empty.shape == (0,)
    assert empty.dtype == rule.coefficients(torch.ones(2, dtype=dtype), torch.tensor([0, 1])).dtype == dtype


@for_each(("make", "message"), [
    (lambda: Flat(1e-40), "clip_norm of the clip rule Flat is 1e-40, with which float32 does not compute exactly"),
    (lambda: PerGroup((1.0, 1e31)), "clip_norms of the clip rule PerGroup is 1e\\+31"),
    (lambda: GlobalAdapt(1e-20, 1e20), "clip_norm / bound of the clip rule GlobalAdapt is 1e-40"),
    (lambda: Global(1e20, 1e-20), "clip_norm / bound of the clip rule Global is 1e\\+40.* from 1e-30 to 1e\\+30"),
    (lambda: Reweighted((1e-20,), (1e-20,)), "weight times clip norm of the clip rule Reweighted is 1e-40")])
def test_numbers_that_float32_loses_are_refused(make: Callable[[], ClipRule], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
