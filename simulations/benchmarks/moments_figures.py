"""Accuracy, gap of accuracy and demographic parity of moments by tau at epsilon 1, from the points of a frontier.

Run: python -m simulations.benchmarks.moments_figures FRONTIER [--seeds N]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

_METHODS = ("moments", "moments, group known")
_HEADS = {"least squares": 0, "logistic": "auto"}  # with the number of steps that each is measured at
_TAUS = ("", ", tau 0.3", ", tau 0", ", tau -0.1")
_MEASURES = ["accuracy", "accuracy_parity", "demographic_parity"]


def main() -> None:
    """Print a line for each method, table and head: the measures at each tau, means over the first seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frontier", type=Path, help="folder that `fedfair reproduce frontier` wrote")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    points = pd.read_csv(given.frontier / "points.csv")
    points = points[(points["split"] == "test") & points["method"].isin(_METHODS) & (points["epsilon"] == 1)
                    & (points["seed"] < given.seeds) & points["demographic_parity"].notna()]
    means = points.groupby(["method", "dataset", "setting"])[_MEASURES].mean()
    print(f"{'method':22}{'table':8}{'head':15}" + "".join(f"{name:18}" for name in ("tau 1", "tau .3", "tau 0",
                                                                                   "tau -.1")))
    for method in _METHODS:
        for dataset in points["dataset"].unique():
            for head, steps in _HEADS.items():
                settings = [(method, dataset, f"{head}{tau}; logistic_steps {steps}, floor 1") for tau in _TAUS]
                cells = ["/".join(f"{value:.3f}" for value in means.loc[at]) for at in settings]
                print(f"{method:22}{dataset:8}{head:15}" + "".join(f"{cell:18}" for cell in cells))


if __name__ == "__main__":
    main()
