"""What a fit selects among: the settings, their noise, and how they are drawn."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from fedfair.mechanisms.randomness import stream
from simulations.fitting.privacy_statement import in_words
from simulations.fitting.private_selection import AUTO, METHODS, Among, Candidate, among
from tests.for_each import for_each


def test_moments_alone_is_no_selection() -> None:
    assert among(("moments",), None) is None
    assert among(("dpsgd",), None) == Among(("dpsgd",), AUTO)
    assert among(("moments", "dpsgd"), 20.0) == Among(("moments", "dpsgd"), 20.0)


@for_each(("methods", "trials", "words"), [
    (("moments",), 5.0, "moments alone have one setting"), (("dpsgd", "sgd"), None, "sgd"),
    ((), None, "name at least one"),
    (("dpsgd", "dpsgd"), None, "each once"), (("dpsgd",), 1.0, "number above 1"),
    (("dpsgd",), math.inf, "number above 1"), (("dpsgd",), math.nan, "number above 1")])
def test_what_is_not_allowed_is_refused(methods: tuple[str, ...], trials: float | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        among(methods, trials)


def test_methods_are_drawn_alike_and_then_their_settings() -> None:
    wanted, source, draws = Among(tuple(METHODS)), stream(3, "candidates"), 6000
    drawn = [wanted.drawn(source) for _ in range(draws)]
    by_method = Counter(candidate.method for candidate in drawn)
    assert all(abs(by_method[method] / draws - 1 / 3) < 0.03 for method in METHODS)
    settings = Counter(str(candidate.settings) for candidate in drawn if candidate.method == "dpsgd")
    assert len(settings) == 4
    assert min(settings.values()) > 0.8 * max(settings.values())


@for_each("candidate", Among(tuple(METHODS)).candidates())
def test_all_candidates_cost_the_same(candidate: Candidate) -> None:
    made: dict[str, Any] = candidate.with_noise(7.0)
    counts = made.get("count_noise_multiplier", math.inf)
    spent = made.get("steps", 1) * (made["noise_multiplier"] ** -2 + counts**-2)
    assert spent == pytest.approx(7.0**-2, rel=1e-12)


def test_candidates_are_told_by_method() -> None:
    assert in_words("moments") == "moments"
    assert in_words("dpsgd") == "dpsgd (clip norm 1, steps 20 or 60, learning rate 3 or 8)"
