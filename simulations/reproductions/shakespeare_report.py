"""The federated experiment as a page to read: what privacy costs participants, by vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from simulations.report.bars import Bar, bar_chart
from simulations.reproductions.vocabularies import COLUMNS, MEASURES, PRIVATE, REFERENCE


def page(command: str, quarters: Mapping[str, pd.DataFrame], active: pd.DataFrame, observed: pd.DataFrame,
         ledger: Ledger, made_with: str) -> str:
    """Return the page; quarters by measure, active and observed are as in `simulations.reproductions.vocabularies`,
    and `made_with` names the versions of the program.
    """
    words = ", ".join(f"{name} {_spread(active[name].mean(), active[name].std(), '.0f')}" for name in active)
    spread = f" ± their deviation over {len(active)} seeds" if len(active) > 1 else ", one seed"
    lines = ["# Bagdasaryan and Shmatikov 2019 (poster), federated: who pays for participant-level privacy", "",
             f"`{command}`", "", made_with, "",
             f"{seen(observed)} Means over participants{spread}. The epsilon of {PRIVATE} is "
             f"{up(ledger.epsilon(), '.2f')} at delta {up(ledger.delta, '.6g')}, for a {ledger.protects} with all "
             f"records ({ledger.guarantee}).", "",
             "![What privacy costs, by vocabulary](picture.svg)", "",
             "| observation | figure | seen in every seed |", "|---|---|---|"]
    lines += [f"| {row['observation']} | {_spread(row['mean'], row['std'], '.3g')} | {'yes' if row['seen'] else 'no'} |"
              for row in observed.to_dict("records")]
    lines += ["", f"Distinct words that a model predicts: {words}.", ""]
    for measure, table in quarters.items():
        lines += [f"## By {MEASURES[measure]}", "", *_table(measure, table), ""]
    return "\n".join(lines)


def seen(observed: pd.DataFrame) -> str:
    """Say how many of the observations are made."""
    return f"{int(observed['seen'].sum())} of {len(observed)} observations are made in every seed."


def _table(measure: str, quarters: pd.DataFrame) -> Iterator[str]:
    """Yield a table with a row for each quarter of the participants."""
    yield f"| vocabulary | words | {REFERENCE}, % | {PRIVATE}, % | cost, % | excess loss | cost/accuracy, % |"
    yield "|---|---|---|---|---|---|---|"
    for row in quarters.to_dict("records"):
        cells = (_spread(row[f"{name}_mean"], row[f"{name}_std"], ".3f") if name == "excessive_risk" else
                 _spread(100 * row[f"{name}_mean"], 100 * row[f"{name}_std"], ".1f") for name in COLUMNS)
        yield f"| {row['quarter']} | {row[f'{measure}_mean']:.0f} | {' | '.join(cells)} |"


def _spread(mean: float, deviation: float, form: str) -> str:
    """Return a mean with its deviation, or alone for one seed."""
    return f"{mean:{form}}" if math.isnan(deviation) else f"{mean:{form}} ± {deviation:{form}}"


def drawing(quarters: Mapping[str, pd.DataFrame], active: pd.DataFrame) -> str:
    """Draw what privacy costs by vocabulary, and the active vocabularies, as SVG."""
    panels = {f"{name}, by {MEASURES[measure]}": [
        Bar(str(row["quarter"]), row[f"{of}_mean"], row[f"{of}_std"]) for row in table.to_dict("records")]
        for of, name in (("cost", "accuracy lost"), ("excessive_risk", "excess loss"))
        for measure, table in quarters.items()}
    panels["active vocabulary, words"] = [
        Bar(str(name), float(active[name].mean()), float(np.nan_to_num(active[name].std()))) for name in active]
    return bar_chart("What participant-level privacy costs, by the participants' vocabulary", panels)
