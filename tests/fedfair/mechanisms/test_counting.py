"""Count queries against a plain loop, and that one record changes them by one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.mechanisms.counting import (
    COUNT_QUERIES,
    Above,
    AboveAndBelow,
    AtMost,
    CountQuery,
    GroupSizes,
    Losses,
    Predictions,
)
from tests.for_each import for_each

K = 3
batches = st.lists(st.tuples(st.floats(0, 2), st.integers(0, K - 1)), max_size=8)
thresholds = st.sampled_from([0.0, 0.5, 1.0])
queries = st.one_of(st.builds(Above, thresholds), st.builds(AtMost, thresholds), st.just(GroupSizes()),
                    st.builds(AboveAndBelow, st.tuples(*[thresholds] * K)))
EXAMPLES: list[CountQuery] = [Above(1.0), AboveAndBelow((1.0, 1.5, 1.0)), AtMost(1.0), GroupSizes()]
few = settings(deadline=None, max_examples=80)


def counted(query: CountQuery, batch: list[tuple[float, int]]) -> Tensor:
    return query.counts(torch.tensor([n for n, _ in batch], dtype=torch.float64),
                        torch.tensor([k for _, k in batch], dtype=torch.long), K)


def slow(query: CountQuery, batch: list[tuple[float, int]]) -> list[float]:
    """Count one batch, one record at a time, row by row."""
    if isinstance(query, GroupSizes):
        return [float(sum(k == group for _, group in batch)) for k in range(K)]
    if isinstance(query, Above):
        return [float(sum(norm > query.threshold for norm, _ in batch))]
    if isinstance(query, AtMost):
        return [float(sum(norm <= query.threshold for norm, _ in batch))]
    assert isinstance(query, AboveAndBelow)
    above, below = [0.0] * K, [0.0] * K
    for norm, group in batch:
        (above if norm > query.thresholds[group] else below)[group] += 1
    return above + below


def test_every_registered_query_is_tested_here() -> None:
    tested = [*EXAMPLES, Predictions(1.0), Losses(1.0)]
    assert {COUNT_QUERIES.name_of(query) for query in tested} == set(COUNT_QUERIES)


@few
@given(batches.filter(bool), st.floats(0.1, 3))
def test_sums_of_losses_equal_a_plain_loop_and_a_record_moves_them_by_at_most_one(batch: list[tuple[float, int]],
                                                                                bound: float) -> None:
    def summed(rows: list[tuple[float, int]]) -> Tensor:
        """Return the query's sums."""
        return Losses(bound).sums(torch.tensor([loss for loss, _ in rows], dtype=torch.float64),
                                  torch.tensor([k for _, k in rows], dtype=torch.long), K)

    plain = [sum(min(loss, bound) / bound for loss, k in batch if k == group) for group in range(K)]
    assert summed(batch).tolist() == pytest.approx(plain)
    assert float((summed(batch) - summed(batch[1:])).norm()) <= 1 + 1e-12


@few
@given(queries, batches)
def test_counts_equal_a_plain_loop(query: CountQuery, batch: list[tuple[float, int]]) -> None:
    assert counted(query, batch).flatten().tolist() == slow(query, batch)


@few
@given(queries, batches.filter(bool))
def test_one_record_changes_the_counts_by_at_most_one_in_euclidean_norm(query: CountQuery,
                                                                         batch: list[tuple[float, int]]) -> None:
    assert float((counted(query, batch) - counted(query, batch[1:])).norm()) <= 1


scores = st.lists(st.one_of(st.floats(-5, 5), st.sampled_from([-1e300, 1e300, math.inf, math.nan])), min_size=3,
                  max_size=3)
scored = st.lists(st.tuples(scores, st.integers(0, K - 1)), min_size=1, max_size=6)


def histogram(temperature: float, batch: list[tuple[list[float], int]]) -> Tensor:
    return Predictions(temperature).histogram(torch.tensor([z for z, _ in batch], dtype=torch.float64).view(-1, 3),
                                              torch.tensor([k for _, k in batch], dtype=torch.long), K)


@few
@given(st.floats(1e-3, 1e3), scored)
def test_a_record_changes_the_histogram_of_predictions_by_at_most_one_whatever_its_scores(
        temperature: float, batch: list[tuple[list[float], int]]) -> None:
    """Hazard 9 too: scores that are not finite add zero, and no record can make the histogram reveal that."""
    found = histogram(temperature, batch)
    assert found.shape == (K, 3)
    assert bool(found.isfinite().all())
    assert float((found - histogram(temperature, batch[1:])).norm()) <= 1 + 1e-12


def test_some_record_changes_the_histogram_of_predictions_by_one() -> None:
    assert histogram(50.0, [([0.0, 99.0, 0.0], 2)]).tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_the_histogram_of_predictions_equals_a_plain_loop() -> None:
    batch = [([0.1, 0.7, -0.2], 0), ([2.0, 0.0, 1.0], 2), ([0.0, 0.5, 0.25], 2)]
    plain = [[0.0] * 3 for _ in range(K)]
    for z, k in batch:
        for c in range(3):
            plain[k][c] += math.exp(2 * z[c]) / sum(math.exp(2 * other) for other in z)
    assert histogram(2.0, batch).flatten().tolist() == pytest.approx([share for row in plain for share in row])


@pytest.mark.parametrize("norms", [[], [1.0]])
def test_predictions_are_never_counted_from_norms(norms: list[float]) -> None:
    """Whether or not there are records: an error alone must not tell."""
    with pytest.raises(ValueError, match="of scores, not of gradient norms"):
        counted(Predictions(1.0), [(norm, 0) for norm in norms])


@for_each("temperature", [0.0, -1.0, math.inf, math.nan])
def test_a_temperature_that_bounds_nothing_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="it must be a finite number above 0"):
        Predictions(temperature)


@few
@given(queries)
def test_some_record_changes_the_counts_by_one(query: CountQuery) -> None:
    changes = [float(counted(query, [(norm, 0)]).norm()) for norm in (0.0, 1e6)]
    assert max(changes) == 1


def test_a_norm_at_the_threshold_is_not_above_it() -> None:
    batch = [(1.0, 0), (1.0, 2), (1.5, 2)]
    assert counted(AboveAndBelow((1.0, 1.0, 1.0)), batch).tolist() == [[0, 0, 1], [1, 0, 1]]
    assert counted(AboveAndBelow((0.5, 1.0, 1.5)), batch).tolist() == [[1, 0, 0], [0, 0, 2]]
    assert counted(Above(1.0), batch).tolist() == [1]
    assert counted(AtMost(1.0), batch).tolist() == [2]


@for_each(("query", "shape"), list(zip(EXAMPLES, [(1,), (2, K), (1,), (K,)], strict=True)))
def test_an_empty_batch_is_counted_as_zeros_of_the_same_shape(query: CountQuery, shape: tuple[int, ...]) -> None:
    counts = counted(query, [])
    assert counts.shape == counted(query, [(2.0, 0)]).shape == shape
    assert counts.dtype == torch.float64
    assert not counts.any()
