"""Seconds that a ledger takes for steps whose multipliers all differ, as dpsgd-f's do.

python -m simulations.benchmarks.ledger [--steps 20000]
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from fedfair.accounting import ACCOUNTANTS, Ledger
from fedfair.accounting.composition import _epsilon
from fedfair.accounting.figures import up
from fedfair.accounting.renyi import divergences
from fedfair.mechanisms.clipping import PerGroup
from fedfair.mechanisms.noise import Trust
from fedfair.protocol.round import Round

_RATE, _NOISE, _COUNTS = 256 / 31655, 1.0, 10.0  # of dpsgd-f on adult


def adaptive_ledger(groups: int, steps: int, seed: int = 0) -> Ledger:
    """Make a ledger of `steps` distinct events; at each, the largest bound is up to twice a group's."""
    draws = np.random.default_rng(seed).uniform(1, 2, (steps, groups))
    ledger = Ledger(map(str, range(groups)), 1e-6)
    plan = Round(key=str(seed), step=0, rates=(_RATE,) * groups, noise_multiplier=_NOISE, trust=Trust.CENTRAL,
                 clients=1, planned_multipliers=(_NOISE,) * groups, count_noise_multiplier=_COUNTS)
    for clip_norms in draws.min(1, keepdims=True) / draws:
        ledger.record(replace(plan, rule=PerGroup(tuple(clip_norms.tolist()))).event())
    return ledger


def main(steps: Annotated[int, typer.Option(min=1, help="Number of steps in the ledger.")] = 20_000) -> None:
    """Print seconds of processor and of wall clock for 2, 5 and 10 groups."""
    for groups in (2, 5, 10):
        ledger = adaptive_ledger(groups, steps)
        for accountant in ACCOUNTANTS:
            _epsilon.cache_clear()
            divergences.cache_clear()
            busy, start = time.process_time(), time.perf_counter()
            spent = sorted(ledger.epsilon_by_group(accountant=accountant).values())
            print(f"{groups} groups, {steps} steps, {accountant}: {time.process_time() - busy:.2f} s of processor, "
                  f"{time.perf_counter() - start:.2f} s; epsilon {up(spent[0], '.4f')} to {up(spent[-1], '.4f')}")


if __name__ == "__main__":
    typer.run(main)
