"""Scores that go one way with a number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression

from fedfair.datasets.features.encoding import Encoding, Feature
from fedfair.moments.monotone import Direction, directions_of, made_monotone, refuse_unordered

FEATURES = (Feature("town", category="a"), Feature("age", bin=(None, 30.0)), Feature("age", bin=(30.0, 40.0)),
            Feature("age", bin=(40.0, 65.0)), Feature("age", bin=(65.0, None)), Feature("age", missing=True),
            Feature("pay"))
ENCODING = Encoding(FEATURES, ())
AGES, PAY = [1, 2, 3, 4], 6


@given(st.integers(0, 2**31), st.sampled_from(["up", "down"]), st.sampled_from([0, 1]))
def test_scores_are_the_nearest_that_go_one_way_and_nothing_else_moves(seed: int, way: Direction, favourable: int
                                                                       ) -> None:
    draws = torch.Generator().manual_seed(seed)
    weights = torch.randn(3, len(FEATURES) + 1, 2, generator=draws, dtype=torch.float64)
    records = torch.randint(-5, 200, (len(FEATURES),), generator=draws).double()
    made = made_monotone(weights, {"age": way, "pay": way}, ENCODING, records, favourable)
    sign = 1 if way == "up" else -1
    for before, after in zip(weights, made, strict=True):
        apart = [each[:, favourable] - each[:, 1 - favourable] for each in (before, after)]
        nearest = isotonic_regression(apart[0][AGES].numpy(), sample_weight=records[AGES].clamp(min=1.0).numpy(),
                                      increasing=way == "up")
        assert np.allclose(apart[1][AGES].numpy(), nearest)
        assert apart[1][PAY] == pytest.approx(sign * max(sign * float(apart[0][PAY]), 0.0))
        assert not after.sum(1)[[*AGES, PAY]].any()
        for written in (after, after.float(), after.half()):
            rising = (sign * (written[:, favourable] - written[:, 1 - favourable]))[AGES].diff()
            assert (rising >= 0).all()
        assert torch.equal(before[[0, 5, 7]], after[[0, 5, 7]])
    assert torch.allclose(made_monotone(made, {"age": way, "pay": way}, ENCODING, records, favourable), made)


@pytest.mark.parametrize(("asked", "message"), [
    (("age",), "'age' says no direction"), (("age=sideways",), "says no direction"),
    (("age=up", "age=down"), "'age=down' is named twice")])
def test_what_says_no_direction_is_refused(asked: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        directions_of(asked)


def test_what_has_no_order_is_refused_with_what_has_one() -> None:
    with pytest.raises(ValueError, match="'town', which is no number among the features: take one of age, pay"):
        refuse_unordered({"town": "up"}, ENCODING, 2)
    with pytest.raises(ValueError, match="there are 3 classes"):
        refuse_unordered({"age": "up"}, ENCODING, 3)
    refuse_unordered({}, ENCODING, 3)
