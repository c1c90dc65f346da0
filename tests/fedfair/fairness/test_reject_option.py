"""Reject-option classification: counts of scores against predictions made record by record, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.fairness.reject_option import (
    CELLS,
    GAMMAS,
    UNSHIFTED,
    RejectOption,
    below_average,
    favoured,
    score,
    score_counts,
)
from fedfair.fairness.threshold_search import counted, toc

EDGES = [float(p) for gamma in GAMMAS for p in (gamma, 1 - gamma)]
NEAR_EDGES = [q for p in EDGES for q in (p, math.nextafter(p, 0), math.nextafter(p, 1))]
SCORES = st.one_of(st.sampled_from(NEAR_EDGES), st.floats(0, 1))


def reject_option(p: float, gamma: float, deprived: bool) -> int:
    """Yang et al. 2024, Algorithm 3, for one record."""
    if max(p, 1 - p) < gamma:
        return 1 if deprived else 0
    return 1 if p >= 0.5 else 0


def slow_toc(p: list[float], group: list[int], deprived: list[bool], theta: float) -> tuple[int, float]:
    """Algorithm 4, from the records: the place of gamma in the grid, and its demographic parity."""
    found = []
    for gamma in GAMMAS.tolist():
        predicted = [reject_option(q, gamma, deprived[k]) for q, k in zip(p, group, strict=True)]
        rates = [sum(y for y, a in zip(predicted, group, strict=True) if a == k) / group.count(k)
                 for k in range(len(deprived))]
        found.append(max(rates) - min(rates))
        if found[-1] <= theta + 1e-12:
            return len(found) - 1, found[-1]
    return found.index(min(found)), min(found)


@settings(deadline=None)
@given(st.lists(st.tuples(SCORES, st.integers(0, 2)), max_size=60))
def test_favoured_counts_are_those_of_every_gamma_and_role(records: list[tuple[float, int]]) -> None:
    p = torch.tensor([q for q, _ in records], dtype=torch.float64)
    group = torch.tensor([k for _, k in records], dtype=torch.long)
    counts = score_counts(p, group, 3)
    assert counts.sum(1).tolist() == [group.tolist().count(k) for k in range(3)]
    found = favoured(counts)
    for place, gamma in enumerate(GAMMAS.tolist()):
        for deprived, at in ((True, UNSHIFTED + place), (False, UNSHIFTED - place)):
            for k in range(3):
                expected = sum(reject_option(q, gamma, deprived) for q, a in records if a == k)
                assert found[k, at] == expected


@settings(deadline=None)
@given(st.lists(SCORES, min_size=3, max_size=60), st.integers(2, 3), st.sampled_from([0.0, 0.05, 1 / 3]), st.data())
def test_the_search_on_counts_is_the_search_on_records(p: list[float], groups: int, theta: float, data: st.DataObject
                                                       ) -> None:
    group = [i if i < groups else data.draw(st.integers(0, groups - 1)) for i in range(len(p))]
    deprived = data.draw(st.lists(st.booleans(), min_size=groups, max_size=groups))
    counts = score_counts(torch.tensor(p, dtype=torch.float64), torch.tensor(group), groups)
    found = toc(counted(counts), tuple(deprived), theta)
    place, parity = slow_toc(p, group, deprived, theta)
    assert found.shifts == tuple(place if up else -place for up in deprived)
    assert found.parity == parity


@settings(deadline=None)
@given(st.lists(SCORES, min_size=1, max_size=40), st.integers(0, 99), st.integers(0, 99))
def test_the_rule_predicts_what_the_definition_says(p: list[float], one: int, other: int) -> None:
    rule = RejectOption.shifted((one, -other), (True, False), favourable=1)
    scores = torch.tensor(p, dtype=torch.float64).clamp(1e-300, 1 - 1e-16)
    logits = torch.stack([(1 - scores).log(), scores.log()], 1)
    exact, _ = score(logits, 1)
    for k, gamma in enumerate(rule.gammas):
        predicted = rule.predict(logits, torch.full((len(p),), k))
        assert predicted.tolist() == [reject_option(q, gamma, rule.deprived[k]) for q in exact.tolist()]


def many_classes() -> tuple[Tensor, Tensor]:
    """Logits of 200 records and five classes, and three groups."""
    draws = torch.Generator().manual_seed(0)
    return torch.randn(200, 5, generator=draws), torch.randint(0, 3, (200,), generator=draws)


def test_of_two_classes_the_score_is_the_probability() -> None:
    logits, _ = many_classes()
    p, rival = score(logits[:, :2], 1)
    assert torch.allclose(p, logits[:, :2].double().softmax(1)[:, 1], rtol=0, atol=1e-15)
    assert bool((rival == 0).all())


def test_of_many_classes_one_is_favourable_against_the_best_of_the_rest() -> None:
    logits, group = many_classes()
    unmoved = RejectOption((0.5, 0.5, 0.5), (True, False, False), favourable=3)
    assert torch.equal(unmoved.predict(logits, group), logits.argmax(1))
    moved = RejectOption((0.9, 0.8, 0.7), (True, False, True), favourable=3).predict(logits, group)
    for z, k, predicted in zip(logits.double(), group.tolist(), moved.tolist(), strict=True):
        rest = [c for c in range(5) if c != 3]
        rival = max(rest, key=lambda c: float(z[c]))
        p = math.exp(z[3]) / (math.exp(z[3]) + math.exp(z[rival]))
        assert predicted == (3 if reject_option(p, (0.9, 0.8, 0.7)[k], k != 1) else rival)
    p, _ = score(logits, 3)
    assert favoured(score_counts(p, group, 3))[:, UNSHIFTED].sum() == (logits.argmax(1) == 3).sum()


def test_deprived_groups_are_those_below_the_average() -> None:
    p = torch.tensor([0.9, 0.9, 0.9, 0.9, 0.1, 0.1, 0.9, 0.1], dtype=torch.float64)
    assert below_average(score_counts(p, torch.tensor([0, 0, 0, 0, 1, 1, 2, 2]), 3)) == (False, True, True)
    assert below_average(score_counts(p[:6], torch.tensor([0, 0, 0, 0, 1, 1]), 2)) == (False, True)


def test_a_rule_travels_as_text() -> None:
    rule = RejectOption((0.5, 0.6313131313131313), (False, True), 4)
    assert RejectOption.from_json(rule.to_json()) == rule


def test_a_sure_wrong_model_saturates_without_a_gap() -> None:
    p, _ = score(torch.tensor([[900.0, -900.0], [-900.0, 900.0]], dtype=torch.float32), 1)
    assert p.tolist() == pytest.approx([0, 1], abs=1e-300)
    assert score_counts(p, torch.tensor([0, 0]), 1).sum() == 2


def test_noisy_counts_are_made_to_grow_with_the_shift() -> None:
    """The search by group looks for rates among ascending ones."""
    noisy = torch.randn(3, CELLS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert bool((noisy.cumsum(1).diff() < 0).any())
    assert bool((favoured(noisy).diff() >= 0).all())


def test_groups_of_one_rate_are_not_deprived_but_for_the_first() -> None:
    """Were none, all would be shifted down together, for which `confident` has no proof."""
    p = torch.tensor([0.9, 0.1] * 4, dtype=torch.float64)
    for groups in (2, 4):
        counts = score_counts(p[: 2 * groups], torch.arange(groups).repeat_interleave(2), groups)
        assert below_average(counts) == (True, *(False,) * (groups - 1))


@example([[9.207476841219602, 6.450241201227648], [72.84475895229849, 51.03094730405803]])  # both below, by rounding
@given(st.lists(st.lists(st.floats(0, 1e6), min_size=2, max_size=2).filter(any), min_size=2, max_size=5))
def test_the_lowest_rate_is_deprived_and_the_highest_is_not(sides: list[list[float]]) -> None:
    counts = torch.zeros(len(sides), CELLS, dtype=torch.float64)
    counts[:, [0, -1]] = torch.tensor(sides, dtype=torch.float64)
    deprived, rates = below_average(counts), [positive / (positive + negative) for positive, negative in sides]
    assert deprived[rates.index(min(rates))]
    assert not deprived[rates.index(max(rates))] or len({*rates}) == 1
    assert len(sides) > 2 or sum(deprived) == 1
