"""A reproduction as a page to read: what ran, what agrees, what does not and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fedfair.accounting.figures import up
from simulations.drawing.figure import Figure
from simulations.drawing.table import Table, markdown
from simulations.reproductions.cells import CHANCE, ClaimTest, Order, Statistics, digits, orders
from simulations.reproductions.published import Published, seeds_of
from simulations.reproductions.request import Request
from simulations.statistics.over_seeds import LEVEL


def report(name: str, published: Published, cells: pd.DataFrame, figures: Sequence[Figure], statistics: Statistics,
           request: Request, made_with: str) -> str:
    """Return the page; `cells` are those of `cells.compared`, and `made_with` names the versions of the program."""
    seeds = seeds_of(published, request)
    lines = [f"# {request.title(published.title)}", "", f"`{request.command(name, seeds)}`", "",
             *([made_with, ""] if made_with else [])]
    if len(cells):
        composed = f" Epsilons are composed by {published.accountant}." if published.accountant else ""
        lines += [f"{sentence(cells)} {_rule(published, seeds)}{composed}", ""]
    lines += request.left_out(published.quick.text)
    if published.departures:
        lines += ["## Settings that are not the paper's", "", *(f"- {text}" for text in published.departures), ""]
    if len(cells):
        lines += [*_disagreements(cells), *_orders(orders(cells, published.orders))]
    lines += [*_claims(statistics.claims), *_findings(statistics.findings)]
    for dataset in cells["dataset"].unique():
        lines += [f"## {dataset}", "", markdown(_table(cells[cells["dataset"] == dataset])), ""]
    for figure in figures:
        lines += [f"## {figure.title}", "", f"![{figure.title}]({figure.name}.svg)", "", figure.caption,
                  f"Data: [{figure.name}.csv]({figure.name}.csv).", ""]
    return "\n".join(lines)


def sentence(cells: pd.DataFrame) -> str:
    """Say how many cells agree."""
    if cells.empty:
        return "Figures alone, without published numbers to compare with."
    ran = cells[cells["agrees"] != "not run"]
    left = f" {len(cells) - len(ran)} were not run." if len(ran) < len(cells) else ""
    return f"{int((ran['agrees'] == 'yes').sum())} of {len(ran)} cells agree.{left}"


def _rule(published: Published, seeds: int) -> str:
    """Say when two cells agree."""
    if published.spread == "none" and seeds == 1:
        return ("With one seed and no published spread, nothing shows what is chance: cells agree if they print the "
                "same digits.")
    spread = (f"two published spreads ({published.spread} over {published.published_seeds} runs)"
              if published.spread != "none" else "two of our standard deviations, since the paper has no spread")
    many = f"{seeds} seeds" if seeds > 1 else "one seed, so without a deviation of ours"
    printing = "the digits cut off" if published.truncated else "rounding"
    trained = " Losses and excessive risks are those of the training part." if published.losses == "train" else ""
    return f"Cells agree if they differ by at most {spread}, beyond {printing}; ours are means over {many}.{trained}"


def _error_parts(seeds: int) -> str:
    """Say of what the standard error of a difference is made."""
    ours = "of ours" if seeds > 1 else "of a single run, which has the published deviation"
    return f" Its error is that of the published mean and {ours}."


def _disagreements(cells: pd.DataFrame) -> Iterator[str]:
    """Yield the cells that disagree, with their explanation or the lack of one."""
    wrong = cells[cells["agrees"] == "no"]
    if wrong.empty:
        return
    yield from ("## What does not agree", "")
    for note in wrong["note"].unique():
        rows = wrong[wrong["note"] == note]
        which = "; ".join(f"{row['dataset']} {row['method']} {row['metric']}{_of(row['group'])} "
                          f"({row['published']}, ours {_ours(row)})" for row in rows.to_dict("records"))
        yield f"- {which}. {note or 'Not explained.'}{_error_parts(int(rows['seeds'].min())) if note == CHANCE else ''}"
    yield ""


def _orders(by_metric: list[Order]) -> Iterator[str]:
    """Yield which methods come in another order than in the paper."""
    if not by_metric:
        return
    yield from ("## Order of the methods", "", "From the lowest value; pairs that the paper prints as equal do not "
                "count.", "")
    for order in by_metric:
        turned = "".join(f"; not: {low} below {high}" for low, high in order.turned)
        clear = f"{order.same_apart} of the {order.apart} that lie" if order.apart else "none of which lies"
        apart = f", {clear} more than two of both published spreads apart" if order.apart < order.pairs else ""
        yield (f"- {order.dataset}, {order.metric}{_of(order.group)}: {' < '.join(order.published)}. Ours: "
               f"{' < '.join(order.ours)}. {order.same} of {order.pairs} pairs in the published order{apart}{turned}.")
    yield ""


def _claims(claims: Sequence[ClaimTest]) -> Iterator[str]:
    """Yield what the paper calls significant, tested again."""
    if not claims:
        return
    seeds = min(claim.seeds for claim in claims)
    seen = sum(claim.p < LEVEL for claim in claims)
    said = (f"{seen} of {len(claims)} are seen at p < {LEVEL}" if 2.0**-seeds < LEVEL else
            f"{seeds} seed{'s' if seeds > 1 else ''} can show none of them, since p is at least {2.0**-seeds:g}")
    yield from ("## What the paper calls significant", "",
                f"One-sided Wilcoxon signed-rank tests, paired by seed, each for itself as in the paper: {said}. The "
                f"last column is corrected for all {len(claims)} (Holm).", "")
    rows = [(claim.dataset, claim.metric, claim.better, claim.worse, f"{claim.difference:.4f}", f"{claim.p:.3f}",
             f"{claim.p_holm:.3f}") for claim in claims]
    columns = ("data", "metric", "better", "worse", "difference", "p", "p, corrected")
    yield from (markdown(Table(columns=columns, rows=rows)), "")


def _findings(findings: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the results of testing all methods against each other on each data set."""
    if any(findings.values()):
        yield from ("## All methods against each other", "", "Every test is in statistics.csv.", "")
        yield from (f"- {dataset}: {' '.join(lines)}" for dataset, lines in findings.items() if lines)
        yield ""


def _table(cells: pd.DataFrame) -> Table:
    """Return the table of one data set's cells."""
    rows: list[tuple[str, ...]] = []
    for row in cells.to_dict("records"):
        published = row["published"] + (f" ± {row['spread']}" if row["spread"] else "")
        spread = "" if math.isnan(row["ours_deviation"]) else f" ± {_number(row['ours_deviation'], row)}"
        ours = "" if row["agrees"] == "not run" else f"{_ours(row)}{spread}"
        numbers = (_number(row[name], row) for name in ("difference", "tolerance"))
        rows.append((row["method"], row["group"], row["metric"], published, ours, *numbers, row["agrees"]))
    columns = ("method", "group", "metric", "published", "ours", "difference", "tolerance", "agrees")
    return Table(columns=columns, rows=rows)


def _number(value: float, row: Mapping[Any, Any]) -> str:
    """Return a number with one digit more than the paper prints; nothing for NaN."""
    return "" if math.isnan(value) else f"{value:.{digits(row['published']) + 1}f}"


def _ours(row: Mapping[Any, Any]) -> str:
    """Our number; an epsilon is rounded up."""
    if row["metric"] == "epsilon" and not math.isnan(row["ours"]):
        return up(row["ours"], f".{digits(row['published']) + 1}f")
    return _number(row["ours"], row)


def _of(group: str) -> str:
    """Return a group's name to follow a metric's."""
    return "" if group in ("all", "gap") else f" of {group}"
