"""Where the budget of a fit goes: what the noise of each step costs alone, and all of it together.

The noise of one step is that of the whole fit; all other steps are exact, so that only the last line is private.
Run: FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.fit_budget [--seeds N] [--epsilon E]
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simulations import Experiment
from simulations.benchmarks.fit_accuracy import tables
from simulations.engines.run import run
from simulations.fitting.fit import Wanted, fit
from simulations.results.result import Result
from strategies.server.budget_shares import PREPROCESSING_SHARE

_EXACT: Mapping[str, Any] = {"preprocessing_epsilon": 1e4, "noise_multiplier": 0.0, "figures": "exact",
                             "figures_epsilon": None}
"""Settings by which no step has noise, or hardly any."""

_STEPS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "preprocessing": ("preprocessing_epsilon",),
    "moments and steps": ("noise_multiplier",),
    "choice and figures": ("figures", "figures_epsilon"),
    "all": tuple(_EXACT),
}
"""Settings that keep the noise of a step, by its name."""


def main() -> None:
    """Print the accuracy of each table's model on test records, and how far the printed accuracy is from it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"{'table':30}{'noise of':>20}{'accuracy':>10}{'sd':>7}{'printed - exact, sd':>21}")
    for table in tables(Path(os.environ["FEDFAIR_DATA_DIR"])):
        whole = [fit(Wanted(table.frame, table.label, table.group, given.epsilon, settings={"seed": seed})).result
                 for seed in range(given.seeds)]
        for step, kept in _STEPS.items():
            figures = np.array([_accuracies(_with_noise_of(made, table.frame, kept)) for made in whole])
            apart = (figures[:, 1] - figures[:, 0]).std(ddof=1)
            print(f"{table.name:30}{step:>20}{figures[:, 0].mean():10.4f}{figures[:, 0].std(ddof=1):7.4f}"
                  f"{apart:21.4f}", flush=True)


def _with_noise_of(whole: Result, frame: Any, kept: tuple[str, ...]) -> Result:
    """Return the run of a fit, of whose steps some keep their noise."""
    plan, made = next(iter(whole.ledger.events)), whole.experiment
    assert made.target_epsilon is not None
    own = {**made.settings(), "csv": frame, "target_epsilon": None, "noise_multiplier": plan.guaranteed(0).multiplier,
           "preprocessing_epsilon": PREPROCESSING_SHARE * made.target_epsilon}
    exact = {name: value for name, value in _EXACT.items() if name not in kept}
    return run(Experiment(**{**own, **exact}))


def _accuracies(made: Result) -> tuple[float, float]:
    """Return the accuracy of a model on test records, and the one that is printed."""
    test = made.data.test
    with torch.no_grad():
        right = float((made.model(test.x).argmax(1) == test.y).double().mean())
    last = made.metrics[made.metrics["round"] == made.metrics["round"].max()]
    rows = last[(last["split"] == "test") & (last["group"] == "all")]
    return right, float(rows.set_index("metric")["value"]["accuracy"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
