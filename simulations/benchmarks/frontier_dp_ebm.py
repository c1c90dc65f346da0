"""DP-EBM (Nori et al. 2021), InterpretML's private additive model, as a rival of moments in the frontier.

FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.frontier_dp_ebm OUT --peers PYTHON [--datasets compas,law]
    [--epsilon 1] [--seeds 5 --pictured-seeds 20]

Same tables, splits, seeds, epsilon and delta as `fedfair reproduce frontier`, whose choice of settings and pages these
are. PYTHON is that of an environment with the extra `interpret`. OUT gets runs.parquet (moments) and peer_points.csv
(DP-EBM); runs and points that are there are not made again, so that a command that was stopped goes on.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import pandas as pd
import torch
import typer

from fedfair.datasets import DATASETS, GroupedDataset
from simulations.benchmarks import peers
from simulations.benchmarks.measuring import undisturbed
from simulations.benchmarks.peer_points import FAVOURABLE, PeerPoint, Stated, by_group, one_threshold
from simulations.commands.terminal import plain_errors
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import from_csv, to_csv
from simulations.reproductions import frontier
from simulations.reproductions.frontier import Entry, Method, Plan
from simulations.reproductions.frontier_report import About
from simulations.reproductions.request import Request, kept_runs, versions
from simulations.results.environment import environment

LABEL, MISSING = "favoured", "missing"
SETTINGS: Mapping[str, Mapping[str, float]] = {
    f"learning rate {rate:g}, rounds {rounds}": {"learning_rate": rate, "max_rounds": rounds}
    for rate, rounds in product((0.1, 0.3, 1.0), (30, 100))}
"""DP-EBM's settings, in words, as many as each method of the frontier has."""

BLIND, KNOWN, BY_GROUP = "DP-EBM", "DP-EBM, group known", "DP-EBM, thresholds by group"
METHODS = {BLIND: Method(strategy="dp-ebm", for_tables=True),
           **{name: Method(strategy="dp-ebm", for_tables=True, knows_group=True) for name in (KNOWN, BY_GROUP)}}

_POINTS, _COSTS = "peer_points.csv", "peer_seconds.csv"
_TITLE = "The frontier with DP-EBM: accuracy against equality between groups"
_METHODS = (
    "Moments as in [the frontier](../frontier/README.md), beside DP-EBM of InterpretML 0.7.8, with the same tables, "
    "splits, seeds, epsilon and delta. DP-EBM is no linear model: it takes the columns of the table as they are, and "
    f"learns a step function of each. It tried {len(SETTINGS)} settings (learning rate .1, .3 or 1, rounds 30 or 100), "
    "each at the whole epsilon. Without the group it has one threshold, .5 or those of moments' front, which cost "
    "nothing. Where the group is known it is a feature, with such a threshold; with thresholds by group, these are "
    "searched as `gs-dp-sgd-to` does, within .01, .05 or .1, on noisy counts of the validation records, which are none "
    "of the training's, at the same whole epsilon.")
_PRIVACY = ("Runs are seeded. Ranges are public for both, and for moments categories too; DP-EBM reads the categories "
            "off the training records, so that its epsilon is nominal. Its seconds are processor time of a training.")


class Known(NamedTuple):
    """One split of one table as a peer takes it.

    Attributes:
        rows: All rows of the table, with `LABEL`, "yes" or "no".
        ranges: Public range of each number.
        kinds: Public list of each category.
        group: The column that is the group.
    """

    rows: pd.DataFrame
    ranges: Mapping[str, tuple[float, float]]
    kinds: Mapping[str, Sequence[str]]
    group: str


def known(entry: Entry) -> Known:
    """Return the table of a run before features are made of it.

    Args:
        entry: The run.
    """
    task = entry.experiment.task
    schema, table = task.schema_of_columns, raw(DATASETS[entry.dataset].load(None))
    (group,) = task.attribute_columns
    return Known(table, {name: (low, high) for name, low, high in schema.ranges},
                 {name: listed for name, listed in schema.categories if name in table}, group)


def raw(data: GroupedDataset) -> pd.DataFrame:
    """Return the cells that features were made of, with `LABEL`; a row without a category has `MISSING`."""
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(data.columns):
        places = [place for place, column in enumerate(data.columns) if column == name]
        values, named = data.x[:, places], [data.categories[place] for place in places]
        if named == [None]:
            columns[name] = values[:, 0].numpy()
        else:
            chosen = values.argmax(1).where(values.sum(1) > 0, len(named)).tolist()
            columns[name] = [(*named, MISSING)[place] for place in chosen]
    return pd.DataFrame({**columns, LABEL: ["yes" if y == FAVOURABLE else "no" for y in data.y.tolist()]})


def trained(python: str, table: Known, entry: Entry, epsilons: Sequence[float]
            ) -> tuple[dict[tuple[str, bool, float], Mapping[str, torch.Tensor]], dict[str, float]]:
    """Train the peer at every setting, with and without the group, and return what it says, by part, and seconds.

    Args:
        python: Python of the peer's environment.
        table: The table.
        entry: A run of the frontier with the same table and seed.
        epsilons: Epsilon of each training.
    """
    parts, asked = entry.experiment.task.data(), list(product(SETTINGS, (False, True), epsilons))
    told = {"label": LABEL, "ranges": table.ranges, "kinds": table.kinds, "seed": entry.experiment.seed,
            "delta": entry.experiment.delta, "gone": [name for name in table.ranges if table.rows[name].isna().any()],
            "asked": {repr(each): {"epsilon": each[2], "without": [] if each[1] else [table.group],
                                   "settings": SETTINGS[each[0]]} for each in asked}}
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_json(folder / "task.json", told)
        table.rows.iloc[parts.train.records.tolist()].to_parquet(folder / "train.parquet")
        places = [*parts.valid.records.tolist(), *parts.test.records.tolist()]
        table.rows.iloc[places].to_parquet(folder / "held_out.parquet")
        said = undisturbed([python, f"{Path(peers.__file__).parent}/dp_ebm_settings.py", name], timeout=3_600)
        scores = pd.read_parquet(folder / "scores.parquet")
    stated = {each: torch.tensor(scores[repr(each)].to_numpy(), dtype=torch.float64) for each in asked}
    cut = len(parts.valid)
    return {each: {"valid": p[:cut], "test": p[cut:]} for each, p in stated.items()}, said["seconds"]


def points_of(python: str, plan: Plan, dataset: str, seed: int, epsilons: Sequence[float]
              ) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the peer's points on one table with one seed, as `frontier.measured` has them, and its costs.

    Args:
        python: Python of the peer's environment.
        plan: The plan of the whole frontier.
        dataset: The table.
        seed: The seed.
        epsilons: Epsilon of each training.
    """
    thresholded = _thresholded(plan, dataset, seed, epsilons)
    entry = thresholded[epsilons[0]][0]
    parts = entry.experiment.task.data()
    said, seconds = trained(python, known(entry), entry, epsilons)
    majority = float(torch.bincount(parts.test.y).max()) / len(parts.test)
    rows = []
    for (words, knows, epsilon), scores in said.items():
        stated = Stated(words, scores)
        made: dict[str, Iterable[PeerPoint]] = {KNOWN if knows else BLIND: one_threshold(parts, stated)}
        if knows:
            made[BY_GROUP] = chain.from_iterable(by_group(parts, stated, run.experiment)
                                                 for run in thresholded[epsilon])
        rows += [{"dataset": dataset, "epsilon": epsilon, "method": method, "seed": seed, "spent": epsilon,
                  "majority": majority, "setting": point.setting, "split": point.split, **point.figures}
                 for method, of_method in made.items() for point in of_method]
    made_points = pd.DataFrame(rows)
    points = made_points.assign(worst_group_error=1 - made_points["worst_group"]).drop(columns="worst_group")
    costs = pd.DataFrame([{"method": KNOWN if knows else BLIND, "dataset": dataset, "seed": seed, "epsilon": epsilon,
                           "seconds": seconds[repr((words, knows, epsilon))]} for words, knows, epsilon in said])
    return points, costs


def _thresholded(plan: Plan, dataset: str, seed: int, epsilons: Sequence[float]) -> dict[float, list[Entry]]:
    """Return a run of the frontier's method with thresholds for each epsilon and theta."""
    (name, method), = ((name, method) for name, method in plan.methods.items() if method.thresholds)
    one = method.model_copy(update={"grid": {**method.grid, "learning_rate": method.grid["learning_rate"][:1]}})
    smaller = plan.model_copy(update={"datasets": (dataset,), "epsilons": tuple(epsilons), "methods": {name: one},
                                      "seeds": seed + 1, "pictured_seeds": seed + 1})
    runs = [run for run in frontier.runs_of(smaller, "cpu") if run.experiment.seed == seed]
    return {epsilon: [run for run in runs if run.epsilon == epsilon] for epsilon in epsilons}


def peer_points(python: str, plan: Plan, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return all points of the peer and its costs, after adding to the folder's files those that are not there.

    Args:
        python: Python of the peer's environment.
        plan: What is compared.
        folder: Folder of the files.
    """
    files = [folder / _POINTS, folder / _COSTS]
    found = [from_csv(file) if file.exists() else pd.DataFrame() for file in files]
    for dataset, seed in product(plan.datasets, range(max(plan.seeds, plan.pictured_seeds))):
        wanted = [epsilon for epsilon in plan.epsilons if seed < plan.seeds_at(epsilon, dataset)]
        missing = [epsilon for epsilon in wanted if not len(_of(found[0], dataset, seed, epsilon))]
        if missing:
            made = points_of(python, frontier.load(), dataset, seed, missing)
            found = [pd.concat([old, new], ignore_index=True) for old, new in zip(found, made, strict=True)]
            for file, frame in zip(files, found, strict=True):
                write_text(file, to_csv(frame))
            typer.echo(f"{dataset}, seed {seed}: DP-EBM at {', '.join(f'{epsilon:g}' for epsilon in missing)}")
    return found[0], found[1]


def _of(points: pd.DataFrame, dataset: str, seed: int, epsilon: float) -> pd.DataFrame:
    """Return the points of one table, seed and epsilon."""
    if points.empty:
        return points
    return points[(points["dataset"] == dataset) & (points["seed"] == seed) & (points["epsilon"] == epsilon)]


def _asked(frame: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Return the rows of the tables, epsilons and seeds of a plan."""
    asked = {(dataset, epsilon, seed) for dataset, epsilon in product(plan.datasets, plan.epsilons)
             for seed in range(plan.seeds_at(epsilon, dataset))}
    return frame[[each in asked for each in zip(frame["dataset"], frame["epsilon"], frame["seed"], strict=True)]]


def asked_plan(datasets: Sequence[str], epsilons: Sequence[float], seeds: int, pictured_seeds: int) -> Plan:
    """Return the plan of moments and DP-EBM.

    Args:
        datasets: Tables; all of the frontier if none is named.
        epsilons: Epsilons; all of the frontier's if none is given.
        seeds: Number of seeds.
        pictured_seeds: That at the epsilons at which fronts are drawn.
    """
    whole = frontier.load(Request(datasets=tuple(datasets)))
    finite = tuple(epsilon for epsilon in epsilons or whole.epsilons if math.isfinite(epsilon))
    return whole.model_copy(update={
        "datasets": tuple(name for name in whole.datasets if name not in whole.images), "epsilons": finite,
        "seeds": seeds, "pictured_seeds": pictured_seeds, "remedies": (),
        "methods": {**{name: whole.methods[name] for name in whole.ours}, **METHODS}})


@plain_errors
def main(out: Annotated[Path, typer.Argument(help="Folder of the pages.")],
         peers_python: Annotated[str, typer.Option("--peers", help="Python of DP-EBM's environment.")] = sys.executable,
         datasets: Annotated[str, typer.Option(help="Names, separated by commas; all tables if none is named.")] = "",
         epsilon: Annotated[list[float] | None, typer.Option(help="Epsilon; all of the frontier's by default.")] = None,
         seeds: Annotated[int, typer.Option(min=1)] = 5,
         pictured_seeds: Annotated[int, typer.Option(min=1, help="Seeds at epsilon 1.")] = 20) -> None:
    """Run moments and DP-EBM, and write the pages."""
    torch.set_num_threads(1)
    plan = asked_plan(tuple(filter(None, datasets.split(","))), epsilon or (), seeds, pictured_seeds)
    folder = Request().begin("frontier-dp-ebm", out)
    of_moments = plan.model_copy(update={"methods": {name: plan.methods[name] for name in plan.ours}})
    entries = list(frontier.runs_of(of_moments, "cpu"))
    runs = kept_runs([entry.experiment for entry in entries], folder)
    write_json(out / "environment.json", environment([entry.experiment for entry in entries]))
    theirs, seconds = (_asked(frame, plan) for frame in peer_points(peers_python, plan, folder))
    each = seconds.groupby(["method", "dataset"], sort=False)["seconds"].agg(runs="size", seconds="median")
    chosen = [f" --datasets {datasets}" if datasets else "", *(f" --epsilon {value:g}" for value in epsilon or ())]
    command = (f"python -m simulations.benchmarks.frontier_dp_ebm DIR --peers PYTHON{''.join(chosen)} --seeds {seeds} "
               f"--pictured-seeds {pictured_seeds}")
    made_with = versions(folder, [entry.experiment for entry in entries])
    about = About(_TITLE, command, _METHODS, _PRIVACY, plan.seeds, plan.pictured_seeds, plan.pictured, (), made_with)
    points = pd.concat([frontier.measured(entries, runs), theirs], ignore_index=True)
    costs = pd.concat([frontier.costs(entries, runs), each.reset_index()], ignore_index=True)
    typer.echo(frontier.told(out, plan, points, costs, about))


if __name__ == "__main__":
    typer.run(main)
