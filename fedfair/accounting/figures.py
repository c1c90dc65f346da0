"""Privacy figures as text: an epsilon or a delta is rounded up, so that no more is promised than was computed."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_EXACT = Context(prec=800)  # enough for the integer digits and decimals of any float


def up(value: float, form: str) -> str:
    """Format an epsilon or a delta, rounded up: 1.00499 with ".2f" is "1.01".

    What is printed, read back, is never below the value, and less than one unit of its last digit above it. Use this
    wherever such a figure becomes text.

    Args:
        value: Figure; an infinite one is "inf".
        form: Format, with decimals (".2f") or with significant digits (".3g").
    """
    return _rounded(value, form, ROUND_CEILING)


def down(value: float, form: str) -> str:
    """Format a lower bound on an epsilon, rounded down, as `up` rounds up.

    Args:
        value: Bound.
        form: Format, as for `up`.
    """
    return _rounded(value, form, ROUND_FLOOR)


def _rounded(value: float, form: str, rounding: str) -> str:
    """Format a number in one direction, from the shortest decimals that stand for it: 0.1 is 0.1, and no more."""
    if not math.isfinite(value):
        return f"{value:{form}}"
    exact, digits = Decimal(repr(float(value))), int(form[1:-1])
    last = -digits if form.endswith("f") else exact.adjusted() - digits + 1
    rounded = exact.quantize(Decimal(1).scaleb(last), rounding, _EXACT)
    return f"{rounded:f}" if form.endswith("f") else f"{float(rounded):{form}}"
