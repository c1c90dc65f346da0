"""Sites whose records differ: `fedfair reproduce heterogeneity`.

Groups are dealt to sites in shares from a Dirichlet distribution (Hsu et al. 2019). Methods train in local epochs,
which such sites pull apart, or take one common step a round. All are tuned over as many learning rates, by accuracy on
the validation part, at a target epsilon and without privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.svg import drawing
from simulations.drawing.table import Table, markdown
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import OnRound
from simulations.reproductions.request import EVERYTHING, Kept, Request, kept_runs, versions
from simulations.reproductions.tuning import Positives
from simulations.results.environment import environment
from simulations.settings.experiment import Experiment
from simulations.settings.presets import merged
from simulations.statistics.over_seeds import over_seeds
from simulations.statistics.summary import final_part

NAME = "heterogeneity"
CONFIG = Path(str(files("simulations") / "configs" / "tuning" / f"{NAME}.toml"))
_TITLE = "Heterogeneity: sites whose records differ, local epochs, FedProx and SCAFFOLD under noise"
_AT_THE_END = 1000.0  # epochs between evaluations: only the end of training decides
_UNREACHED = 1e6  # a clip norm that no gradient exceeds
_PLACE = ["dataset", "epsilon", "local_epochs", "method", "alpha"]


class Data(BaseModel):
    """A data set's own settings, and the learning rates that every method tries on it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rates: Positives
    settings: Mapping[str, Any] = {}


class Study(BaseModel):
    """What is compared, on `data` by name of the set: methods by name, those in `local` epochs and `common` steps.

    The former run with every one of `alphas` and `local_epochs`; the latter draw the same batches whatever site holds a
    record, so they run once. A common batch has a share `batch` of the records, and each of the `sites` an even part of
    that. The first of `local` is the one that others are compared with. Of the seeds the first `choosing_seeds` choose
    learning rates. `others` are the names of data sets that were not asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seeds: Annotated[int, Field(ge=2)]
    choosing_seeds: Annotated[int, Field(ge=1)]
    target_epsilon: Annotated[float, Field(gt=0)]
    alphas: Positives
    local_epochs: Annotated[tuple[int, ...], Field(min_length=1)]
    sites: Annotated[int, Field(ge=2)]
    batch: Annotated[float, Field(gt=0, le=1)]
    settings: Mapping[str, Any] = {}
    data: Mapping[str, Data]
    local: Mapping[str, Mapping[str, Any]]
    common: Mapping[str, Mapping[str, Any]]
    others: tuple[str, ...] = ()
    text: str = ""


class Cell(NamedTuple):
    """What a learning rate is chosen for: data set, epsilon (infinity without privacy), number of local epochs (0 for
    one step a round), method and alpha (NaN where it does not matter).
    """

    dataset: str
    epsilon: float
    local_epochs: int
    method: str
    alpha: float | None


class Entry(NamedTuple):
    """One run: its cell, its learning rate, and what it is."""

    cell: Cell
    rate: float
    experiment: Experiment


def load(request: Request = EVERYTHING, file: Path = CONFIG) -> Study:
    """Read the requested part of the configuration.

    Raises what `Request.of_data` raises.
    """
    return request.of_data(NAME, file, Study)


def cells(study: Study) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield every cell with the settings of its runs, but for learning rate and seed."""
    for dataset, data in study.data.items():
        shared = merged(study.settings, data.settings, {"dataset": dataset, "eval_every": _AT_THE_END,
                                                        "partition": "site", "clients": study.sites})
        for epsilon in (study.target_epsilon, math.inf):
            noise = ({"target_epsilon": epsilon} if math.isfinite(epsilon) else
                     {"noise_multiplier": 0.0, "clip_norm": _UNREACHED})
            apart = merged(shared, noise, {"sync": "epoch", "sampling_rate": study.batch / study.sites})
            together = merged(shared, noise, {"sync": "step", "sampling_rate": study.batch})
            for local_epochs, alpha in product(study.local_epochs, study.alphas):
                for name, own in study.local.items():
                    settings = merged(apart, {"local_epochs": local_epochs, "alpha": alpha}, own)
                    yield Cell(dataset, epsilon, local_epochs, name, alpha), settings
            for name, own in study.common.items():
                yield Cell(dataset, epsilon, 0, name, None), merged(together, own)


def plan(study: Study, device: str, chosen: Mapping[Cell, float] | None = None) -> list[Entry]:
    """Return the runs that choose learning rates; once they are `chosen`, by cell, those with the other seeds."""
    first = min(study.choosing_seeds, study.seeds)
    seeds = range(first) if chosen is None else range(first, study.seeds)
    return [Entry(cell, rate, Experiment(**settings, device=device, learning_rate=rate, seed=seed))
            for cell, settings in cells(study)
            for rate in (study.data[cell.dataset].learning_rates if chosen is None else (chosen[cell],))
            for seed in seeds]


def measures(entries: Sequence[Entry], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return a row for each run: its cell, rate, seed, valid and accuracy (of all on the validation and the test part),
    worst (the lowest accuracy of a group there) and noise (the multiplier of its gradient sums).
    """
    rows = []
    for (cell, rate, experiment), run in zip(entries, runs, strict=True):
        valid, test = (final_part(run.metrics.assign(dataset=cell.dataset, strategy="", seed=0), split).iloc[0]
                       for split in ("valid", "test"))
        accuracies = test.xs("accuracy", level=1)
        noise = min((min(event.multipliers) for event in run.ledger.events), default=0.0)
        rows.append({**cell._asdict(), "rate": rate, "seed": experiment.seed, "valid": valid[ALL, "accuracy"],
                     "accuracy": accuracies[ALL], "worst": accuracies.drop(ALL).min(), "noise": noise})
    return pd.DataFrame(rows)


def choose(tried: pd.DataFrame) -> dict[Cell, float]:
    """Return the learning rate of the highest mean validation accuracy, by cell."""
    means = tried.groupby([*_PLACE, "rate"], sort=False, dropna=False)["valid"].mean()
    best = means.groupby(level=_PLACE, sort=False, dropna=False).idxmax()
    return {Cell(str(dataset), epsilon, int(epochs), str(method), None if math.isnan(alpha) else alpha): rate
            for dataset, epsilon, epochs, method, alpha, rate in best}


def heterogeneity(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1,
                  file: Path = CONFIG) -> str:
    """Run everything, write it to `out`, and return what was found in a sentence for each data set.

    `out` gets runs.csv (what was chosen, by seed), README.md, a picture of each data set and environment.json; kept
    runs are not repeated. Raises what `simulations.reproductions.fair_fight` does.
    """
    study = load(request, file)
    folder = request.begin(NAME, out)
    tried = plan(study, request.device)
    measured = measures(tried, kept_runs([entry.experiment for entry in tried], folder, on_round, jobs))
    chosen = choose(measured)
    others = plan(study, request.device, chosen)
    confirmed = kept_runs([entry.experiment for entry in others], folder, on_round, jobs)
    rates = pd.DataFrame([(*cell, rate) for cell, rate in chosen.items()], columns=[*_PLACE, "rate"])
    taken = pd.concat([measured.merge(rates), *([measures(others, confirmed)] if others else [])], ignore_index=True)
    experiments = [entry.experiment for entry in [*tried, *others]]
    write_text(out / "runs.csv", to_csv(taken))
    for dataset in study.data:
        write_text(out / f"{dataset}.svg", drawing(picture(dataset, study, taken[taken["dataset"] == dataset])))
    write_json(out / "environment.json", environment(experiments))
    write_text(out / "README.md", page(study, taken, request, versions(folder, experiments)))
    return " ".join(findings(study, taken))


def among(taken: pd.DataFrame, epsilon: float, method: str, local_epochs: int, alpha: float | None) -> pd.DataFrame:
    """Return the runs of one method by seed; of one step a round, which has no alpha, those for every alpha.

    Args:
        taken: Runs with the chosen learning rates, of one data set.
        epsilon: Infinity without privacy.
        method: Name of the method.
        local_epochs: Number of local epochs in a round.
        alpha: How sites mix the groups.
    """
    own = taken[(taken["epsilon"] == epsilon) & (taken["method"] == method)]
    here = own["alpha"].isna() | ((own["alpha"] == alpha) & (own["local_epochs"] == local_epochs))
    return own[here].sort_values("seed").reset_index(drop=True)


def differences(study: Study, taken: pd.DataFrame, epsilon: float, method: str) -> dict[tuple[int, float], Estimate]:
    """Return how much more accurate a method is than local epochs alone, by number of local epochs and alpha; means
    over seeds, paired by seed.
    """
    base = next(iter(study.local))
    found = {}
    for local_epochs in study.local_epochs:
        for alpha in study.alphas:
            own, alone = (among(taken, epsilon, name, local_epochs, alpha)["accuracy"] for name in (method, base))
            found[local_epochs, alpha] = over_seeds((own - alone).tolist())
    return found


def findings(study: Study, taken: pd.DataFrame) -> Iterator[str]:
    """Yield for each data set where methods are told apart from local epochs alone, without privacy and with it."""
    base, *rest = [*study.local, *study.common]
    for dataset, own in taken.groupby("dataset", sort=False):
        said = []
        for epsilon in (math.inf, study.target_epsilon):
            told = []
            for method in rest:
                gaps = differences(study, own, epsilon, method).values()
                above, below = sum(gap.low > 0 for gap in gaps), sum(gap.high < 0 for gap in gaps)
                told.append(f"{method} in {above} ({below})")
            said.append(f"{_at(epsilon)} {', '.join(told)}")
        settings = len(study.local_epochs) * len(study.alphas)
        yield (f"{dataset}: of {settings} pairs of alpha and number of local epochs, told to be more (less) accurate "
               f"than {base} alone: {'; '.join(said)}.")


def picture(dataset: str, study: Study, taken: pd.DataFrame) -> Figure:
    """Return the accuracy by alpha: a panel for each epsilon and number of local epochs, a line for each method."""
    ticks = {alpha: f"{alpha:g}" for alpha in study.alphas}
    panels = []
    for epsilon in (math.inf, study.target_epsilon):
        for local_epochs in study.local_epochs:
            series = []
            for place, method in enumerate((*study.local, *study.common)):
                each = {alpha: among(taken, epsilon, method, local_epochs, alpha) for alpha in study.alphas}
                series.append(Series(method, place, tuple(
                    Point(Estimate(alpha), over_seeds(own["accuracy"].tolist())) for alpha, own in each.items())))
            title = f"{_at(epsilon)}, local epochs a round: {local_epochs}"
            x = Scale(f"alpha, {title}", log=True, ticks=ticks)
            panels.append(Panel(title, x, Scale("accuracy"), tuple(series)))
    return Figure(dataset, f"{dataset}: accuracy where sites differ more (left) or less (right)", "", tuple(panels),
                  same="y")


def page(study: Study, taken: pd.DataFrame, request: Request, made_with: str) -> str:
    """Return the page; `taken` are the runs with the chosen learning rates."""
    lines = [f"# {request.title(_TITLE)}", "", *(f"- {line}" for line in findings(study, taken)), ""]
    for dataset in study.data:
        lines += [f"![Accuracy by alpha, number of local epochs, epsilon and method, {dataset}]({dataset}.svg)", ""]
    lines += [f"`{request.command(NAME, study.seeds)}`", "", made_with, "", *request.left_out(study.text),
              *([f"Not run here: {', '.join(study.others)}.", ""] if study.others else []), *_explained(study)]
    for dataset in study.data:
        lines += _section(study, dataset, taken[taken["dataset"] == dataset])
    return "\n".join(lines)


def _explained(study: Study) -> Iterator[str]:
    """Yield what was done, and what the figures are worth."""
    methods = "; ".join(f"{name}: {_words(own)}" for name, own in {**study.local, **study.common}.items())
    yield from (
        f"Means of {study.seeds} seeds on the test part, ± half a 95 % t-interval (bands in the pictures); a method is "
        "told to be more or less accurate where the interval of the difference, paired by seed, does not hold 0; "
        "nothing is taken off for the number of intervals. Every method has, for each alpha, number of local epochs "
        "and epsilon, the learning rate of the highest mean accuracy on the validation part with the first "
        f"{min(study.choosing_seeds, study.seeds)} of the seeds; edge: the smallest or largest that was tried. Other "
        "settings are not tuned, FedProx's term neither. Without privacy nothing is clipped. Epsilon is of a "
        "simulation with seeds.", "",
        f"Every run has {study.sites} sites, {_words(study.settings)}. Methods have: {methods}. A common batch is "
        f"{study.batch:g} of the records, a site's its even part of that, whatever it holds. A round of several local "
        "epochs takes the place of as many rounds of one: epochs, steps and noise of each are the same. In local "
        "epochs each site adds all of the noise itself, which protects it from everybody, and so does one step with "
        "trust local; with a trusted server the noise is added once. One noise multiplier is enough for every site: a "
        "site of fewer records than its batch takes all of them into each step, and all sites then have the noise that "
        "this needs. One step a round draws the same batches whatever site holds a record, so it has one figure for "
        "all alphas.", "")


def _section(study: Study, dataset: str, taken: pd.DataFrame) -> Iterator[str]:
    """Yield what is told of one data set."""
    data = study.data[dataset]
    yield from (f"## {dataset}", "", f"{_words(data.settings).capitalize()}; learning rates "
                f"{', '.join(f'{rate:g}' for rate in data.learning_rates)}.", "",
                "Accuracy, with the learning rate:", "", markdown(_table(study, taken, "accuracy")), "",
                "Accuracy of the worst group:", "", markdown(_table(study, taken, "worst")), "",
                f"Noise multiplier at epsilon {study.target_epsilon:g}, mean over seeds:", "",
                markdown(_noise(study, taken)), "")


def _table(study: Study, taken: pd.DataFrame, measure: str) -> Table:
    """Return means of a measure: a row for each epsilon, number of local epochs and method, a column for each alpha."""
    rows = []
    for epsilon in (math.inf, study.target_epsilon):
        for local_epochs in study.local_epochs:
            rows += [(_at(epsilon), str(local_epochs), method, *(_mean(study, among(
                taken, epsilon, method, local_epochs, alpha), measure) for alpha in study.alphas))
                for method in study.local]
        rows += [(_at(epsilon), "", method, *[_mean(study, among(taken, epsilon, method, 0, None), measure)] * len(
            study.alphas)) for method in study.common]
    return Table(columns=("epsilon", "local epochs", "method", *_alphas(study)), rows=rows)


def _noise(study: Study, taken: pd.DataFrame) -> Table:
    """Return the noise multipliers of local epochs, and of one step a round."""
    base, first = next(iter(study.local)), study.local_epochs[0]
    rows = [(method, *(f"{among(taken, study.target_epsilon, method, first, alpha)['noise'].mean():.2f}"
                       for alpha in study.alphas)) for method in (base, *study.common)]
    return Table(columns=("method", *_alphas(study)), rows=rows)


def _alphas(study: Study) -> tuple[str, ...]:
    """Return the headings of columns by alpha."""
    return tuple(f"alpha {alpha:g}" for alpha in study.alphas)


def _mean(study: Study, own: pd.DataFrame, measure: str) -> str:
    """Return a mean with half its interval; of accuracies also the learning rate, marked at an edge of those tried."""
    found = over_seeds(own[measure].tolist())
    said = f"{found.value:.3f} ± {(found.high - found.low) / 2:.3f}"
    if measure != "accuracy":
        return said
    rate, rates = float(own["rate"].iloc[0]), study.data[str(own["dataset"].iloc[0])].learning_rates
    return f"{said}, {rate:g}{' (edge)' * (rate in (min(rates), max(rates)))}"


def _at(epsilon: float) -> str:
    """Return an epsilon in words."""
    return f"at epsilon {epsilon:g}" if math.isfinite(epsilon) else "without privacy"


def _words(settings: Mapping[str, Any]) -> str:
    """Return settings in words."""
    return ", ".join(f"{name} {_list(value) if isinstance(value, list) else value}" for name, value in settings.items())


def _list(values: Iterable[float]) -> str:
    """Return numbers in words."""
    return ", ".join(f"{value:g}" for value in values)
