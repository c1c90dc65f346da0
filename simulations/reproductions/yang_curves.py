"""Yang et al. 2024, Figures 2 and 3: what demographic parity costs three methods. `fedfair reproduce NAME`.

The paper prints pictures and no numbers, so what is compared are its statements about them: at a demographic parity of
0.1, and, as the paper makes them, for the same demographic parity wherever two curves can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from simulations.plans.compare import experiments
from simulations.plans.curves import curves, write_curves
from simulations.reproductions.request import EVERYTHING, Request
from simulations.reproductions.store import OnRound
from simulations.results.atomic_files import write_json, write_text
from simulations.results.environment import environment

NAME = "yang2024-figures2-3"
_PRESET = "yang2024"
DATASETS = ("adult", "bank", "compas", "credit", "dutch", "law")
OURS, OTHERS, PLAIN = "gs-dp-sgd-to", ("dpsgd-p", "fair-dp"), "dpsgd"
FAIR = 0.1  # a demographic parity below which the paper calls outcomes fair
_NORMS = tuple(place / 10 for place in range(1, 11))  # of fair-dp's last layer, as in the paper
_PAPERS_SEEDS, _SEEDS, _QUICK_SEEDS = 15, 5, 1
_PLACES = 10_001  # at which a share of a range is measured, besides the curves' points
_OUT_OF_REACH = ("compas", "dutch")  # where the paper's fair-dp does not get below FAIR


class Statement(NamedTuple):
    """Something the paper says of its figures, about one data set; `seen` is None if nothing here can tell."""

    dataset: str
    text: str
    found: str
    seen: bool | None


def yang_curves(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1) -> str:
    """Run all curves, a folder for each data set, and write statements.csv, environment.json and README.md; returns
    what is seen.

    With several `jobs`, so many runs go on at a time, each in a process. The quick version is Adult alone with three
    norms of fair-dp. Kept runs are not run again, so that curves that were broken off, or get more seeds, go on where
    they were. Raises `ValueError` for a data set that is not in them, `FileExistsError` if the folder holds something
    else, another `OSError` if it or that of the runs could not be written, and what `simulations.engines.run.run`
    raises.
    """
    names, norms, number = (DATASETS[:1], _NORMS[::4], _QUICK_SEEDS) if request.quick else (DATASETS, _NORMS, _SEEDS)
    datasets, seeds = request.among(names), request.seeds or number
    kept = request.begin(NAME, out)
    statements: list[Statement] = []
    for place, dataset in enumerate(datasets):
        def within(done: int, runs: int, name: str, rounds: int, of: int, place: int = place, data: str = dataset
                   ) -> None:
            """Tell how far all data sets are."""
            on_round(place, len(datasets), f"{data}, {name}", done * of + rounds, runs * of)

        frame = curves([OURS, *OTHERS, PLAIN], range(seeds), _PRESET, {"dataset": dataset, "device": request.device},
                       {"fair-dp.options.max_norm": norms}, on_round=within, jobs=jobs, kept=kept)
        settings = {"dataset": dataset, "seeds": seeds, "max_norm": list(norms), "device": request.device}
        write_curves(frame, settings, out / dataset)
        statements += _statements(dataset, frame)
    made = [experiments([OURS, *OTHERS, PLAIN], [0], _PRESET, {"dataset": dataset, "device": request.device})
            for dataset in datasets]
    write_json(out / "environment.json", environment([run for runs in made for run in runs]))
    return _write(statements, out, seeds, request)


def _write(statements: Iterable[Statement], out: Path, seeds: int, request: Request) -> str:
    """Write statements.csv and README.md; returns how many statements are seen."""
    frame = pd.DataFrame(statements)
    write_text(out / "statements.csv", frame.to_csv(index=False))
    told = frame[frame["seen"].notna()]
    said = f"{int(told['seen'].astype(bool).sum())} of {len(told)} statements are seen."
    write_text(out / "README.md", _page(frame, said, seeds, request))
    return said


def _statements(dataset: str, frame: pd.DataFrame) -> Iterator[Statement]:
    """What the paper says, of the curves of one data set: means over seeds."""
    means = frame.groupby(["strategy", "value"], dropna=False)[["demographic_parity", "accuracy_parity", "accuracy"]]
    points = means.mean().reset_index().assign(error=lambda mean: 1 - mean["accuracy"])
    by_method = {str(name): own.sort_values("demographic_parity") for name, own in points.groupby("strategy")}
    least = {name: float(own["demographic_parity"].min()) for name, own in by_method.items()}
    for name in (OURS, OTHERS[0]):
        yield Statement(dataset, f"{name} gets below a demographic parity of {FAIR}", f"{least[name]:.3f}",
                        least[name] < FAIR)
    out_of_reach = dataset in _OUT_OF_REACH
    yield Statement(dataset, f"fair-dp gets {'no lower than' if out_of_reach else 'below'} {FAIR}",
                    f"{least['fair-dp']:.3f}", (least["fair-dp"] >= FAIR) == out_of_reach)
    plain = float(by_method[PLAIN]["accuracy_parity"].iloc[0])
    at = {name: _at(own, FAIR) for name, own in by_method.items() if name != PLAIN}
    parity = {name: value["accuracy_parity"] for name, value in at.items() if value}
    accuracy = {name: value["accuracy"] for name, value in at.items() if value}
    yield Statement(dataset, f"at {FAIR}, {OURS} has the lowest accuracy parity", _told(parity), _least(parity))
    yield Statement(dataset, f"at {FAIR}, {OURS} has a lower accuracy parity than dpsgd",
                    f"{_told(parity)}; {PLAIN} {plain:.3f}", parity[OURS] < plain if OURS in parity else None)
    yield Statement(dataset, f"at {FAIR}, {OURS} has the highest accuracy", _told(accuracy),
                    _least({name: -value for name, value in accuracy.items()}))
    own, others = by_method[OURS], [by_method[name] for name in OTHERS]
    dashed = own.assign(accuracy_parity=plain)
    for text, beside, measure in ((f"{OURS} has the lowest accuracy parity", others, "accuracy_parity"),
                                  (f"{OURS} has a lower accuracy parity than dpsgd", [dashed], "accuracy_parity"),
                                  (f"{OURS} has the highest accuracy", others, "error")):
        yield Statement(dataset, f"throughout, {text}", *_throughout(own, beside, measure))


def _throughout(own: pd.DataFrame, others: Sequence[pd.DataFrame], measure: str) -> tuple[str, bool | None]:
    """In which share of the demographic parities that a curve has in common with another, or several, its measure is
    below all of those, in words; and whether it is everywhere, None if there is nothing in common.

    All curves' points are among the places looked at. Between them the curves are straight, so that one which is below
    the others at all of these is below them everywhere.
    """
    knots = np.unique(pd.concat([own, *others])["demographic_parity"])
    places = np.union1d(knots, np.linspace(knots[0], knots[-1], _PLACES))
    along = [np.interp(places, curve["demographic_parity"], curve[measure], left=np.nan, right=np.nan)
             for curve in (own, *others)]
    lead = np.fmin.reduce(along[1:]) - along[0]
    common = ~np.isnan(lead)
    if not common.any():
        return "no other curve gets there", None
    lead, places = lead[common], places[common]
    found = f"in {np.floor(1000 * np.mean(lead > 0)) / 10:.1f} % of {places[0]:.3f} to {places[-1]:.3f}"
    if (lead > 0).all():
        return found, True
    return f"{found}, and misses it by {abs(lead.min()):.2g} at most", False


def _at(curve: pd.DataFrame, demographic_parity: float) -> Mapping[str, float]:
    """A curve's values where it crosses a demographic parity; nothing if it does not."""
    across = curve["demographic_parity"].to_numpy()
    if not across.min() <= demographic_parity <= across.max():
        return {}
    return {name: float(np.interp(demographic_parity, across, curve[name])) for name in ("accuracy_parity", "accuracy")}


def _least(values: Mapping[str, float]) -> bool | None:
    """Whether ours is the least of at least two that got there."""
    return values[OURS] == min(values.values()) if OURS in values and len(values) > 1 else None


def _told(values: Mapping[str, float]) -> str:
    """The values in words."""
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items()) or "no curve gets there"


def _page(statements: pd.DataFrame, said: str, seeds: int, request: Request) -> str:
    """The page."""
    lines = [f"# {request.title('Yang, Huang and Yao 2024, Figures 2 and 3')}", "",
             f"`{request.command(NAME, seeds)}`", "",
             f"{said} Means over {seeds} seed{'s' if seeds > 1 else ''}, where the paper has {_PAPERS_SEEDS}; by "
             f"default there are {_SEEDS} here, {_QUICK_SEEDS} in the quick version. Values between two points of a "
             "curve lie on the line between them.", "",
             f"The paper says that {OURS} has the lowest accuracy parity and the highest accuracy \"for the same "
             "DemParity value\", and stays below dpsgd's accuracy parity. \"Throughout\" is wherever its curve has a "
             "demographic parity in common with fair-dp or dpsgd-p, or, beside dpsgd, its whole curve. It is seen only "
             "if it holds everywhere there; what is found is the share of that range, and by how much it fails. Of "
             "accuracy the paper excepts compas and dutch.", "",
             *request.left_out(f"Adult alone, three norms of fair-dp, {_QUICK_SEEDS} seed by default instead of "
                               f"{_SEEDS}.")]
    for dataset, own in statements.groupby("dataset", sort=False):
        lines += [f"## {dataset}", "", f"![Curves of {dataset}]({dataset}/curves.svg)", "",
                  "| statement | found | seen |", "|---|---|---|"]
        lines += [f"| {row.text} | {row.found} | {'-' if row.seen is None else 'yes' if row.seen else 'no'} |"
                  for row in own.itertuples()]
        lines.append("")
    return "\n".join(lines)
