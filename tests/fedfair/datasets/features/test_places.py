"""The places of a record's ones are those of its features, made one by one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfair.datasets.features.encoding import Bounding, Encoding, Feature, places_of, rows_of
from tests.for_each import for_each

ends = st.lists(st.integers(-3, 3).map(float), max_size=4, unique=True).map(sorted)
numbers = st.lists(st.one_of(st.integers(-4, 4).map(float), st.just(math.nan), st.just(math.inf)), min_size=1,
                   max_size=8)


@given(ends, st.sets(st.integers(0, 4)), st.booleans(), numbers, st.integers(1, 2))
@settings(max_examples=100, deadline=None)
def test_bins_with_gaps_and_missing_numbers(ends: list[float], left_out: set[int], missing: bool, values: list[float],
                                            longest: int) -> None:
    bins = [Feature("age", bin=bin_) for place, bin_ in enumerate(zip([None, *ends], [*ends, None], strict=True))
            if place not in left_out and bin_ != (None, None)]
    features = (*bins, *([Feature("age", missing=True)] if missing else []), Feature("town", "a"), Feature("town", "b"))
    towns = torch.tensor([place % 3 - 1 for place in range(len(values))])
    held = {"age": torch.tensor(values, dtype=torch.float64), "town": towns}
    bounding = Bounding(math.sqrt(longest), 1.0)
    expected = torch.stack([feature.of(held["age"]) if feature.column == "age" else
                            (towns == "ab".index(str(feature.category))).double() for feature in features], 1)
    for bound in (None, bounding):
        places = places_of(held.__getitem__, Encoding(features, bounding=bound))
        assert places is not None
        made = rows_of(places, len(features), bound)
        assert torch.equal(made, expected if bound is None else bound.of(expected))


@for_each("features", [
    [Feature("age", bin=(None, 2.0)), Feature("age", bin=(1.0, None))], [Feature("age")],
    [Feature("age", bin=(None, 2.0)), Feature("age")],
    [Feature("age", bin=(None, None)), Feature("age", bin=(1.0, 2.0))],
    [Feature("age", bin=(None, 2.0)), Feature("town", "a"), Feature("age", bin=(None, 2.0))],
    [Feature("age", "a"), Feature("age", missing=True)]])
def test_features_of_which_two_may_not_be_0_have_no_places(features: list[Feature]) -> None:
    held: dict[str, Tensor] = {"age": torch.tensor([0.5, 1.5])}
    assert places_of(held.__getitem__, Encoding(tuple(features))) is None


@pytest.mark.parametrize(("width", "kind"), [(255, torch.uint8), (256, torch.int16), (2**15, torch.int32)])
def test_a_place_takes_a_byte_where_there_are_few_features(width: int, kind: torch.dtype) -> None:
    features = tuple(Feature("word", f"{place:05}") for place in range(width))
    places = places_of(lambda name: torch.tensor([width - 1, -1]), Encoding(features))
    assert places is not None
    assert places.dtype == kind
    assert places.flatten().tolist() == [width - 1, width]
