"""Draw docs/digits.svg from the summary.csv of `fedfair compare --out DIR`: python docs/picture.py DIR/summary.csv."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import Range
from simulations.drawing.svg import bar_chart


def drawing(summary: pd.DataFrame) -> str:
    """Draw, for each strategy, a bar for all records and one for the small group."""
    panels = {}
    for row in summary.to_dict("records"):
        epsilon = "no privacy" if row["guarantee"] == "none" else f"epsilon {row['epsilon']:.1f}"
        panels[f"{row['strategy']}, {epsilon}"] = {
            name: Estimate(row[f"{metric}_mean"], row[f"{metric}_mean"] - row[f"{metric}_sd"],
                           row[f"{metric}_mean"] + row[f"{metric}_sd"])
            for name, metric in (("all records", "accuracy"), ("class 8, 40 records", "accuracy_8"))}
    return bar_chart("Test accuracy on digits by method, for all records and for the smallest group", panels,
                     Range(0.0, 1.0))


if __name__ == "__main__":
    Path(__file__).with_name("digits.svg").write_text(drawing(pd.read_csv(sys.argv[1])))
