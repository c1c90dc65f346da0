"""Draw docs/digits.svg from the summary.csv of `fedfair compare --out DIR`: python docs/picture.py DIR/summary.csv."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

WIDTH, BAR, LEFT, SCALE = 640, 18, 170, 400.0
COLOURS = {"all": "#0072b2", "8": "#d55e00"}  # told apart by colour-blind people
LABELS = {"all": "all records", "8": "class 8, 40 training records"}


def bar(y: int, group: str, mean: float, deviation: float) -> str:
    """One bar with its deviation and value; `y` in pixels from the top."""
    end, half = LEFT + SCALE * mean, SCALE * deviation
    middle = y + BAR / 2
    return (f'<rect x="{LEFT}" y="{y}" width="{SCALE * mean:.0f}" height="{BAR - 2}" fill="{COLOURS[group]}"/>'
            f'<line x1="{end - half:.0f}" x2="{end + half:.0f}" y1="{middle}" y2="{middle}" stroke="#888"/>'
            f'<text x="{end + half + 6:.0f}" y="{y + 13}">{mean:.3f}</text>')


def picture(summary: pd.DataFrame) -> str:
    """The whole drawing: for each strategy a bar for all records and one for the small group."""
    lines, y = [], 44
    for row in summary.to_dict("records"):
        epsilon = "no privacy" if row["guarantee"] == "none" else f"epsilon {row['epsilon']:.1f}"
        lines.append(f'<text x="8" y="{y + 13}" font-weight="bold">{row["strategy"]}</text>'
                     f'<text x="8" y="{y + 31}">{epsilon}</text>')
        for place, (group, name) in enumerate((("all", "accuracy"), ("8", "accuracy_8"))):
            lines.append(bar(y + place * BAR, group, row[f"{name}_mean"], row[f"{name}_sd"]))
        y += 2 * BAR + 14
    legend = "".join(f'<rect x="{LEFT + 140 * place}" y="14" width="12" height="12" fill="{COLOURS[group]}"/>'
                     f'<text x="{LEFT + 140 * place + 18}" y="25">{LABELS[group]}</text>'
                     for place, group in enumerate(COLOURS))
    style = '<style>text{font:13px sans-serif;fill:#888}</style>'
    title = "<title>Test accuracy on digits by method, for all records and for the smallest group</title>"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">{title}{style}{legend}'
            f'{"".join(lines)}</svg>\n')


if __name__ == "__main__":
    Path(__file__).with_name("digits.svg").write_text(picture(pd.read_csv(sys.argv[1])))
