"""No printed epsilon or delta is below the figure, or more than a unit of its last digit above it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from fedfair.accounting.figures import down, up
from tests.for_each import for_each

FIGURES = st.floats(0, 1e300, allow_subnormal=False)


def unit(value: float, form: str) -> Fraction:
    """Return one unit of the last digit that a form has for a value."""
    digits = int(form[1:-1])
    last = -digits if form.endswith("f") else Decimal(repr(value)).adjusted() + 1 - digits
    return Fraction(10) ** last


@given(FIGURES, st.integers(0, 6).map(lambda digits: f".{digits}f") | st.integers(1, 12).map(lambda d: f".{d}g"))
@example(1.00499, ".2f")
@example(0.0049, ".2f")
@example(9.994, ".3g")
@example(1004.9, ".3g")
@example(9.999, ".3g")
def test_what_is_printed_is_never_below_the_figure(value: float, form: str) -> None:
    printed = up(value, form)
    assert float(printed) >= value
    assert Fraction(printed) - Fraction(repr(value)) < unit(value, form)
    lower = down(value, form)
    assert float(lower) <= value
    assert Fraction(repr(value)) - Fraction(lower) < unit(value, form)


@for_each(("value", "form", "printed"), [
    (1.00499, ".2f", "1.01"), (1.0, ".2f", "1.00"), (0.0049, ".2f", "0.01"), (2.00049, ".3f", "2.001"),
    (0.1, ".1f", "0.1"), (2.2, ".2f", "2.20"), (0.0, ".3f", "0.000"), (1e-5, ".6g", "1e-05"), (1e-5, ".3g", "1e-05"),
    (1004.9, ".3g", "1.01e+03"), (9.994, ".3g", "10"), (1 / 1339, ".3g", "0.000747"), (math.inf, ".2f", "inf"),
    (math.inf, ".3g", "inf"), (math.nan, ".2f", "nan"), (np.float64(1.00499), ".2f", "1.01"), (1, ".2f", "1.00")])
def test_figures_as_they_are_printed(value: float, form: str, printed: str) -> None:
    assert up(value, form) == printed


def test_a_bound_from_below_is_rounded_down() -> None:
    assert (down(1.00999, ".2f"), down(1.0, ".2f"), down(math.inf, ".2f")) == ("1.00", "1.00", "inf")
