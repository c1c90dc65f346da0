"""Count queries against a plain loop, and that one record changes them by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.mechanisms.counting import COUNT_QUERIES, Above, AboveAndBelow, AtMost, CountQuery, GroupSizes

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
    assert {COUNT_QUERIES.name_of(query) for query in EXAMPLES} == set(COUNT_QUERIES)


@few
@given(queries, batches)
def test_counts_equal_a_plain_loop(query: CountQuery, batch: list[tuple[float, int]]) -> None:
    assert counted(query, batch).flatten().tolist() == slow(query, batch)


@few
@given(queries, batches.filter(bool))
def test_one_record_changes_the_counts_by_at_most_one_in_euclidean_norm(query: CountQuery,
                                                                         batch: list[tuple[float, int]]) -> None:
    assert float((counted(query, batch) - counted(query, batch[1:])).norm()) <= 1


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


@pytest.mark.parametrize(("query", "shape"), list(zip(EXAMPLES, [(1,), (2, K), (1,), (K,)], strict=True)))
def test_an_empty_batch_is_counted_as_zeros_of_the_same_shape(query: CountQuery, shape: tuple[int, ...]) -> None:
    counts = counted(query, [])
    assert counts.shape == counted(query, [(2.0, 0)]).shape == shape
    assert counts.dtype == torch.float64
    assert not counts.any()
