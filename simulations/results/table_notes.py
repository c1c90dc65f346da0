"""Notes below a comparison's table: on its epsilons, deltas and thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up


def large_deltas(ledgers: Iterable[Ledger]) -> list[str]:
    """Warn, once for each, of deltas that are above one over the number of training records."""
    warnings = dict.fromkeys(ledger.delta_warning() for ledger in ledgers)
    return [f"Warning: {warning}." for warning in warnings if warning]


def unequal_epsilons(summary: pd.DataFrame) -> Sequence[str]:
    """Warn if the largest finite epsilon is more than a tenth above the smallest."""
    spent = [epsilon for epsilon in summary["epsilon"] if math.isfinite(epsilon)]
    if max(spent, default=0) <= 1.1 * min(spent, default=0):
        return []
    return ["Epsilon differs between methods: set target_epsilon to compare them at the same epsilon."]


def searched(summary: pd.DataFrame) -> Sequence[str]:
    """Say what the search for thresholds cost the validation records: their epsilon is not that of the table."""
    spent = summary.set_index("strategy")["validation_epsilon"]
    plain, noisy = spent[spent.map(math.isinf)], spent[spent.map(math.isfinite) & (spent > 0)]
    lines = [f"The thresholds of {', '.join(plain.index)} were searched on validation data, which is not protected: "
             "set threshold_epsilon to protect it."] if len(plain) else []
    for name, epsilon in noisy.items():
        lines.append(f"The threshold of {name} was searched on validation data, at an epsilon of {up(epsilon, '.2f')} "
                     "for its records.")
    return lines
