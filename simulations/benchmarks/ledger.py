"""Seconds that a ledger takes for steps whose multipliers all differ, as dpsgd-f's do.

python -m simulations.benchmarks.ledger [--steps 20000]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from fedfair.accounting import ACCOUNTANTS, Event, Ledger
from fedfair.accounting.composition import _epsilon
from fedfair.accounting.renyi import divergences

_RATE, _NOISE, _COUNTS = 256 / 31655, 1.0, 10.0  # of dpsgd-f on adult


def adaptive_ledger(groups: int, steps: int, seed: int = 0) -> Ledger:
    """`steps` distinct events; at each, the largest bound is up to twice a group's."""
    draws = np.random.default_rng(seed).uniform(1, 2, (steps, groups))
    ledger = Ledger(map(str, range(groups)), 1e-6)
    for largest in draws / draws.min(1, keepdims=True):
        spent = tuple((_NOISE * largest).tolist())
        ledger.record(Event((_RATE,) * groups, (_NOISE,) * groups, spent, _COUNTS))
    return ledger


def main() -> None:
    """Print seconds of processor and of wall clock for 2, 5 and 10 groups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    steps = parser.parse_args().steps
    for groups in (2, 5, 10):
        ledger = adaptive_ledger(groups, steps)
        for accountant in ACCOUNTANTS:
            _epsilon.cache_clear()
            divergences.cache_clear()
            busy, start = time.process_time(), time.perf_counter()
            spent = sorted(ledger.epsilon_by_group(accountant=accountant).values())
            print(f"{groups} groups, {steps} steps, {accountant}: {time.process_time() - busy:.2f} s of processor, "
                  f"{time.perf_counter() - start:.2f} s; epsilon {spent[0]:.4f} to {spent[-1]:.4f}")


if __name__ == "__main__":
    main()
