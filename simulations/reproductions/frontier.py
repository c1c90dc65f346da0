"""The frontier: accuracy against equality between groups, of every method at the same epsilon, tuned alike.

Every method tries as many settings, on the same features. For each limit on a gap, the setting with the highest mean
accuracy on the validation part among those within the limit there is kept, and measured on the test part.
`fedfair reproduce frontier`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from fedfair.fairness.metrics import ALL
from fedfair.node.front_counts import HELD_OUT
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import OnRound, experiments
from simulations.reproductions import frontier_choice as choice
from simulations.reproductions import frontier_report as report
from simulations.reproductions.request import EVERYTHING, Kept, Request, kept_runs, versions
from simulations.results.environment import environment
from simulations.settings.experiment import Experiment

NAME = "frontier"
CONFIG = Path(str(files("simulations") / "configs" / "tuning" / f"{NAME}.toml"))

Shares = tuple[Annotated[float, Field(gt=0, le=1)], ...]
_AT_THE_END = 1000.0  # epochs between evaluations
_TITLE = "The frontier: accuracy against equality between groups, by method"
_METHODS = ("Linear models on the same features of norm at most 1. Methods that know the group have it as a feature, "
            "or thresholds by group; the others decide without it, and each is compared with those that know as much. "
            "A method tried up to {settings} settings, and of moments the front of each, which costs nothing more.")
_PRIVACY = ("Runs are seeded, so their epsilon is simulated; with the system's randomness it would be proved, for "
            "these data by public ranges and categories.")


class Method(BaseModel):
    """A method with the settings that it tries: every combination of the values of its `grid`, and then of
    `second_grid`; or for images of `grid_of_images`, if it has one.

    `knows_group` says whether decisions may depend on the group: it is a feature, or there are thresholds by group;
    `for_tables` that the method needs two classes, or groups that are not the classes; `thresholds` that it has those
    from a release of validation records, with the same epsilon.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    strategy: str
    knows_group: bool = False
    for_tables: bool = False
    thresholds: bool = False
    grid: Mapping[str, tuple[Any, ...]] = {}
    second_grid: Mapping[str, tuple[Any, ...]] | None = None
    grid_of_images: Mapping[str, tuple[Any, ...]] | None = None

    def tried(self, on_images: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the settings that it tries.

        Args:
            on_images: Whether the data are images, which may have a grid of their own.
        """
        if on_images and self.grid_of_images is not None:
            yield from _combinations(self.grid_of_images)
            return
        yield from _combinations(self.grid)
        if self.second_grid is not None:
            yield from _combinations(self.second_grid)


class Plan(BaseModel):
    """What is compared: `methods` by name.

    Batches are a `share` of the records. `images` has settings of the data sets of images, whose groups are their
    classes; `limits` are on each measure; `ours` are the methods whose fronts are compared with those of other methods
    that know as much. Fronts are drawn at the epsilons `pictured`, with `pictured_seeds` of tables. What noise adds to
    the gap of accuracy of the `remedies` is told beside the `reference`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    datasets: tuple[str, ...]
    epsilons: tuple[Annotated[float, Field(gt=0)], ...]
    seeds: Annotated[int, Field(ge=1)]
    share: Annotated[float, Field(gt=0, le=1)]
    limits: Mapping[str, Shares]
    ours: tuple[str, ...]
    pictured: tuple[float, ...]
    pictured_seeds: Annotated[int, Field(ge=1)]
    reference: str
    remedies: tuple[str, ...]
    settings: Mapping[str, Any]
    images: Mapping[str, Mapping[str, Any]] = {}
    methods: Mapping[str, Method]
    text: str = ""

    def seeds_at(self, epsilon: float, dataset: str) -> int:
        """Return the number of seeds of a data set at an epsilon."""
        return self.pictured_seeds if epsilon in self.pictured and dataset not in self.images else self.seeds

    @property
    def most_settings(self) -> int:
        """The largest number of settings that a method tries."""
        return max(len([*method.tried()]) for method in self.methods.values())

    def rivals(self, ours: str) -> list[str]:
        """Return the methods of other strategies that know as much as one of ours."""
        own = self.methods[ours]
        return [name for name, method in self.methods.items()
                if method.strategy != own.strategy and method.knows_group == own.knows_group]


class Entry(NamedTuple):
    """One run: its data set, epsilon, method, the words of its setting, and what it is."""

    dataset: str
    epsilon: float
    method: str
    setting: str
    experiment: Experiment


def frontier(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1,
             file: Path = CONFIG) -> str:
    """Run everything, write it to `out`, and return the finding in a sentence; kept runs are not repeated.

    `out` gets points.csv (every setting and seed), fronts.csv (what was chosen), README.md, pictures and
    environment.json. Raises `FileExistsError` if the folder holds something else, another `OSError` if it cannot be
    written, and what `kept_runs` raises.
    """
    plan = load(request, file)
    entries = list(runs_of(plan, request.device))
    folder = request.begin(NAME, out)
    runs = kept_runs([entry.experiment for entry in entries], folder, on_round, jobs)
    made_with = versions(folder, [entry.experiment for entry in entries])
    write_json(out / "environment.json", environment([entry.experiment for entry in entries]))
    about = report.About(request.title(_TITLE), request.command(NAME, request.seeds),
                         _METHODS.format(settings=plan.most_settings), _PRIVACY, plan.seeds, plan.pictured_seeds,
                         plan.pictured, request.left_out(plan.text), made_with)
    return told(out, plan, measured(entries, runs), costs(entries, runs), about)


def told(out: Path, plan: Plan, points: pd.DataFrame, each_cost: pd.DataFrame, about: report.About) -> str:
    """Choose among points, write what is found to `out`, and return the finding in a sentence.

    Args:
        out: Folder of the pages.
        plan: What is compared; a method without points is left out.
        points: Every setting and seed (see `measured`).
        each_cost: Runs and seconds (see `costs`).
        about: What the pages say of how it was made.
    """
    fronts = choice.fronts(points, plan.limits)
    compared = pd.concat([choice.against(fronts[fronts["method"].isin([ours, *plan.rivals(ours)])], ours)
                          for ours in plan.ours], ignore_index=True)
    write_text(out / "points.csv", to_csv(points))
    write_text(out / "fronts.csv", to_csv(fronts))
    report.write(out, report.Found(plan.limits, fronts, choice.volumes(fronts, plan.limits), compared, each_cost,
                                   choice.impact(points, plan.reference, plan.remedies)), about)
    return " ".join(report.findings(compared))


def load(request: Request = EVERYTHING, file: Path = CONFIG) -> Plan:
    """Read the requested part of the configuration.

    Raises what `Request.of_configuration` raises, and `ValueError` for a data set or an epsilon that is not in it.
    """
    plan = request.of_configuration(NAME, file, Plan, ("seeds", "pictured_seeds"))
    epsilons = request.among_epsilons(plan.epsilons)
    pictured = tuple(epsilon for epsilon in plan.pictured if epsilon in epsilons)
    return plan.model_copy(update={"datasets": request.among(plan.datasets), "epsilons": epsilons, "pictured": pictured,
                                   "pictured_seeds": plan.pictured_seeds if pictured else plan.seeds})


def runs_of(plan: Plan, device: str) -> Iterator[Entry]:
    """Yield every run: data sets, what is known, seeds, epsilons, methods and settings; those with the same prepared
    records one after another.
    """
    most = max(plan.seeds, plan.pictured_seeds)
    for dataset, knows_group, seed in product(plan.datasets, (False, True), range(most)):
        methods = {name: method for name, method in plan.methods.items() if method.knows_group == knows_group
                   and not (method.for_tables and dataset in plan.images)}
        epsilons = [epsilon for epsilon in plan.epsilons if seed < plan.seeds_at(epsilon, dataset)]
        for epsilon, (name, method) in product(epsilons, methods.items()):
            noise = {"target_epsilon": epsilon} if math.isfinite(epsilon) else {"noise_multiplier": 0.0}
            if method.thresholds and math.isfinite(epsilon):
                noise["threshold_epsilon"] = epsilon
            for setting in method.tried(on_images=dataset in plan.images):
                given = {**plan.settings, **plan.images.get(dataset, {}), **noise, **setting, "dataset": dataset,
                         "device": device, "batch_size": 1, "eval_every": _AT_THE_END, "preprocessing": "public",
                         "attribute_in_model": knows_group}
                (made,) = experiments([method.strategy], [seed], None, given)
                batch = max(1, round(plan.share * len(made.task.data().train)))
                yield Entry(dataset, epsilon, name, _words(setting), made.model_copy(update={"batch_size": batch}))


def _combinations(values: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the settings of a grid."""
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def _words(setting: Mapping[str, Any]) -> str:
    """Return a setting in words."""
    return ", ".join(f"{name.removeprefix('options.')} {value if isinstance(value, str) else format(value, 'g')}"
                     for name, value in setting.items())


def measured(entries: Sequence[Entry], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return a row for each point of each run and part.

    Columns: dataset, epsilon, method, setting, seed, split, spent (the ledger's epsilon), majority (the rate of the
    most frequent class among test records), accuracy, and the measures.
    """
    rows = []
    for entry, run in zip(entries, runs, strict=True):
        named = {"dataset": entry.dataset, "epsilon": entry.epsilon, "method": entry.method,
                 "seed": entry.experiment.seed, "spent": run.ledger.epsilon(), "majority": _majority(run.metrics)}
        points = run.points or [{"setting": entry.setting, "figures": _figures(run.metrics)}]
        for point in points:
            setting = "; ".join(filter(None, [point["setting"] if run.points else "", entry.setting]))
            rows += [{**named, "setting": setting, "split": split, **point["figures"][split]} for split in HELD_OUT]
    made = pd.DataFrame(rows)
    return made.assign(worst_group_error=1 - made["worst_group"]).drop(columns="worst_group")


def costs(entries: Sequence[Entry], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return how many runs each method has, and the median of the seconds that one took.

    Columns: method, dataset, runs, seconds (NaN where they were not kept).
    """
    each = pd.DataFrame({"method": [entry.method for entry in entries], "dataset": [entry.dataset for entry in entries],
                         "seconds": [run.seconds for run in runs]}).astype({"seconds": float})
    return each.groupby(["method", "dataset"], sort=False)["seconds"].agg(runs="size", seconds="median").reset_index()


def _majority(metrics: pd.DataFrame) -> float:
    """Return the rate of the most frequent class among test records."""
    overall = metrics[(metrics["split"] == "test") & (metrics["group"] == ALL)]
    return float(overall[overall["metric"] == "majority_rate"]["value"].iloc[-1])


def _figures(metrics: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the figures of a run's decisions at its end, by part."""
    last = metrics[metrics["round"] == metrics["round"].max()]
    named = {split: last[last["split"] == split][["group", "metric", "value"]] for split in HELD_OUT}
    return {split: choice.of_decisions(rows.itertuples(index=False, name=None)) for split, rows in named.items()}
