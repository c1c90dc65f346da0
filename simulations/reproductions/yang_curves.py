"""Yang et al. 2024, Figures 2 and 3: what demographic parity costs three methods.

`fedfair reproduce yang2024-figures2-3 --out DIR`. The paper prints pictures and no numbers, so its statements about
them are compared: at a demographic parity of 0.1, and, as the paper makes them, for the same demographic parity
wherever two curves can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from simulations.drawing.table import Table, markdown
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import OnRound, experiments
from simulations.plans.curves import curves
from simulations.plans.plan_files import write_curves
from simulations.reproductions.request import EVERYTHING, Request, versions
from simulations.results.environment import environment

NAME = "yang2024-figures2-3"
_PRESET = "yang2024"
DATASETS = ("adult", "bank", "compas", "credit", "dutch", "law")
OURS, OTHERS, PLAIN = "gs-dp-sgd-to", ("dpsgd-p", "fair-dp"), "dpsgd"
FAIR = 0.1  # a demographic parity below which the paper calls outcomes fair
_NORMS = tuple(place / 10 for place in range(1, 11))  # of fair-dp's last layer, as in the paper
_PAPERS_SEEDS, _SEEDS, _QUICK_SEEDS = 15, 5, 1
_PLACES = 10_001  # at which the share of a range is measured, besides the curves' points
_OUT_OF_REACH = ("compas", "dutch")  # where the paper's fair-dp does not get below FAIR


class Statement(NamedTuple):
    """A statement of the paper about its figures, on one data set; `seen` is None if our curves cannot decide it."""

    dataset: str
    text: str
    found: str
    seen: bool | None


def yang_curves(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1) -> str:
    """Run all curves, a folder for each data set, write statements.csv, environment.json and README.md, and say how
    many statements are seen.

    Up to `jobs` runs go on at a time, each in a process if there are several. The quick version is Adult alone with
    three norms of fair-dp. Kept runs are not run again, so interrupted curves, or curves with more seeds, go on where
    they were. Raises `ValueError` for a data set that is not in them, `FileExistsError` if the folder holds something
    else, another `OSError` if it or that of the runs cannot be written, and what `curves` raises.
    """
    quick = (DATASETS[:1], _NORMS[::4], _QUICK_SEEDS)
    names, norms, by_default = quick if request.quick else (DATASETS, _NORMS, _SEEDS)
    datasets, seeds = request.among(names), request.seeds or by_default
    folder = request.begin(NAME, out)
    statements: list[Statement] = []
    for number, dataset in enumerate(datasets):
        def within(done: int, runs: int, name: str, rounds: int, of: int, number: int = number, data: str = dataset
                   ) -> None:
            """Report the progress of all data sets."""
            on_round(number, len(datasets), f"{data}, {name}", done * of + rounds, runs * of)

        frame = curves([OURS, *OTHERS, PLAIN], range(seeds), _PRESET, {"dataset": dataset, "device": request.device},
                       {"fair-dp.options.max_norm": norms}, on_round=within, jobs=jobs, kept=folder)
        settings = {"dataset": dataset, "seeds": seeds, "max_norm": list(norms), "device": request.device}
        write_curves(frame, settings, out / dataset)
        statements += _statements(dataset, frame)
    made = [experiments([OURS, *OTHERS, PLAIN], [0], _PRESET, {"dataset": dataset, "device": request.device})
            for dataset in datasets]
    write_json(out / "environment.json", environment([run for runs in made for run in runs]))
    return _write(statements, out, seeds, request, versions(folder))


def _write(statements: Iterable[Statement], out: Path, seeds: int, request: Request, made_with: str) -> str:
    """Write statements.csv and README.md, and say how many statements are seen."""
    frame = pd.DataFrame(statements)
    write_text(out / "statements.csv", to_csv(frame))
    decided = frame[frame["seen"].notna()]
    summary = f"{int(decided['seen'].astype(bool).sum())} of {len(decided)} statements are seen."
    write_text(out / "README.md", _page(frame, summary, seeds, request, made_with))
    return summary


def _statements(dataset: str, frame: pd.DataFrame) -> Iterator[Statement]:
    """Yield the paper's statements, compared with the curves of one data set: means over seeds."""
    means = frame.groupby(["strategy", "value"], dropna=False)[["demographic_parity", "accuracy_parity", "accuracy"]]
    points = means.mean().reset_index().assign(error=lambda mean: 1 - mean["accuracy"])
    by_method = {str(name): curve.sort_values("demographic_parity") for name, curve in points.groupby("strategy")}
    least = {name: float(curve["demographic_parity"].min()) for name, curve in by_method.items()}
    for name in (OURS, OTHERS[0]):
        yield Statement(dataset, f"{name} gets below a demographic parity of {FAIR}", f"{least[name]:.3f}",
                        least[name] < FAIR)
    out_of_reach = dataset in _OUT_OF_REACH
    yield Statement(dataset, f"fair-dp gets {'no lower than' if out_of_reach else 'below'} {FAIR}",
                    f"{least['fair-dp']:.3f}", (least["fair-dp"] >= FAIR) == out_of_reach)
    plain = float(by_method[PLAIN]["accuracy_parity"].iloc[0])
    at = {name: _at(curve, FAIR) for name, curve in by_method.items() if name != PLAIN}
    parity = {name: value["accuracy_parity"] for name, value in at.items() if value}
    accuracy = {name: value["accuracy"] for name, value in at.items() if value}
    yield Statement(dataset, f"at {FAIR}, {OURS} has the lowest accuracy parity", _listed(parity), _least(parity))
    yield Statement(dataset, f"at {FAIR}, {OURS} has a lower accuracy parity than dpsgd",
                    f"{_listed(parity)}; {PLAIN} {plain:.3f}", parity[OURS] < plain if OURS in parity else None)
    yield Statement(dataset, f"at {FAIR}, {OURS} has the highest accuracy", _listed(accuracy),
                    _least({name: -value for name, value in accuracy.items()}))
    ours, others = by_method[OURS], [by_method[name] for name in OTHERS]
    dashed = ours.assign(accuracy_parity=plain)
    for text, beside, measure in ((f"{OURS} has the lowest accuracy parity", others, "accuracy_parity"),
                                  (f"{OURS} has a lower accuracy parity than dpsgd", [dashed], "accuracy_parity"),
                                  (f"{OURS} has the highest accuracy", others, "error")):
        yield Statement(dataset, f"throughout, {text}", *_throughout(ours, beside, measure))


def _throughout(ours: pd.DataFrame, others: Sequence[pd.DataFrame], measure: str) -> tuple[str, bool | None]:
    """Say in which share of the demographic parities that our curve has in common with some others its measure is below
    all of theirs; and return whether that is everywhere, None if nothing is in common.

    All curves' points are among the places where they are compared. Between these the curves are straight, so one that
    is below the others at all of them is below everywhere.
    """
    knots = np.unique(pd.concat([ours, *others])["demographic_parity"])
    places = np.union1d(knots, np.linspace(knots[0], knots[-1], _PLACES))
    along = [np.interp(places, curve["demographic_parity"], curve[measure], left=np.nan, right=np.nan)
             for curve in (ours, *others)]
    lead = np.fmin.reduce(along[1:]) - along[0]
    common = ~np.isnan(lead)
    if not common.any():
        return "no other curve gets there", None
    lead, places = lead[common], places[common]
    share = f"in {np.floor(1000 * np.mean(lead > 0)) / 10:.1f} % of {places[0]:.3f} to {places[-1]:.3f}"
    if (lead > 0).all():
        return share, True
    return f"{share}, and misses it by {abs(lead.min()):.2g} at most", False


def _at(curve: pd.DataFrame, demographic_parity: float) -> Mapping[str, float]:
    """Return a curve's values where it crosses a demographic parity; nothing if it does not."""
    across = curve["demographic_parity"].to_numpy()
    if not across.min() <= demographic_parity <= across.max():
        return {}
    return {name: float(np.interp(demographic_parity, across, curve[name])) for name in ("accuracy_parity", "accuracy")}


def _least(values: Mapping[str, float]) -> bool | None:
    """Return whether our value is the least of at least two; None without ours or others."""
    return values[OURS] == min(values.values()) if OURS in values and len(values) > 1 else None


def _listed(values: Mapping[str, float]) -> str:
    """Return the values in words."""
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items()) or "no curve gets there"


def _page(statements: pd.DataFrame, summary: str, seeds: int, request: Request, made_with: str) -> str:
    """Return the page."""
    lines = [f"# {request.title('Yang, Huang and Yao 2024, Figures 2 and 3')}", "",
             f"`{request.command(NAME, seeds)}`", "", made_with, "",
             f"{summary} Means over {seeds} seed{'s' if seeds > 1 else ''}, where the paper has {_PAPERS_SEEDS}; by "
             f"default there are {_SEEDS} here, {_QUICK_SEEDS} in the quick version. Values between two points of a "
             "curve lie on the line between them.", "",
             f"The paper says that {OURS} has the lowest accuracy parity and the highest accuracy \"for the same "
             "DemParity value\", and stays below dpsgd's accuracy parity. \"Throughout\" is wherever its curve has a "
             "demographic parity in common with fair-dp or dpsgd-p, or, beside dpsgd, its whole curve. A statement is "
             "seen only if it holds everywhere there; we find the share of that range where it holds, and by how much "
             "it fails elsewhere. For accuracy the paper excepts compas and dutch.", "",
             *request.left_out(f"Adult alone, three norms of fair-dp, {_QUICK_SEEDS} seed by default instead of "
                               f"{_SEEDS}.")]
    for dataset, rows in statements.groupby("dataset", sort=False):
        cells = [(row["text"], row["found"], "-" if row["seen"] is None else "yes" if row["seen"] else "no")
                 for row in rows.to_dict("records")]
        lines += [f"## {dataset}", "", f"![Curves of {dataset}]({dataset}/curves.svg)", "",
                  markdown(Table(columns=("statement", "found", "seen"), rows=cells)), ""]
    return "\n".join(lines)
