"""Draw docs/digits.svg from the summary.csv of `fedfair compare --out DIR`: python docs/picture.py DIR/summary.csv."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from simulations.drawing.figure import COLOURS, Range
from simulations.drawing.svg import Bar, bar_chart


def drawing(summary: pd.DataFrame) -> str:
    """Draw, for each strategy, a bar for all records and one for the small group."""
    panels = {}
    for row in summary.to_dict("records"):
        epsilon = "no privacy" if row["guarantee"] == "none" else f"epsilon {row['epsilon']:.1f}"
        panels[f"{row['strategy']}, {epsilon}"] = [
            Bar("all records", row["accuracy_mean"], row["accuracy_sd"]),
            Bar("class 8, 40 records", row["accuracy_8_mean"], row["accuracy_8_sd"], COLOURS[2])]
    return bar_chart("Test accuracy on digits by method, for all records and for the smallest group", panels,
                     Range(0.0, 1.0))


if __name__ == "__main__":
    Path(__file__).with_name("digits.svg").write_text(drawing(pd.read_csv(sys.argv[1])))
