"""What privacy costs a group, by its share of the training records, by epsilon and by method: `fedfair reproduce
surface`.

The group is thinned out in the training part, and every method is tuned over as many values of one number, by accuracy
on the validation part. The group's cost is its accuracy without privacy less that with it, by seed. One number a
method: the smallest share from which on the cost is borne, that is, below a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.figure import Figure, Panel, Point, Scale, Series
from simulations.drawing.svg import drawing
from simulations.drawing.table import Table, markdown
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import OnRound
from simulations.reproductions.request import EVERYTHING, Kept, Request, kept_runs, versions
from simulations.reproductions.surface_study import CONFIG, NAME, Entry, Method, Study, load, plan
from simulations.results.environment import environment
from simulations.statistics.over_seeds import over_seeds
from simulations.statistics.summary import REFERENCE

_TITLE = "The surface: what privacy costs a group, by its share of the training records, epsilon and method"
_AT = ["dataset", "share", "epsilon", "method"]


class Borne(NamedTuple):
    """From which share on a cost is borne.

    Attributes:
        share: The smallest share tried at which, and at all larger ones, the whole interval lies below the bound; NaN
            if there is none.
        by_mean: The same of the mean alone.
        untold: Shares tried at which the interval holds the bound.
    """

    share: float
    by_mean: float
    untold: tuple[float, ...]


def borne(costs: Mapping[float, Estimate], bound: float) -> Borne:
    """Return from which share on a cost is below a bound.

    Args:
        costs: The group's cost by share, a mean with its interval.
        bound: What a cost must be below.

    Examples:
        >>> costs = {0.01: Estimate(0.2, 0.1, 0.3), 0.05: Estimate(0.04, 0.02, 0.06), 0.1: Estimate(0.01, 0.0, 0.02)}
        >>> borne(costs, 0.05)
        Borne(share=0.1, by_mean=0.05, untold=(0.05,))
    """
    untold = tuple(share for share, cost in sorted(costs.items()) if cost.low < bound <= cost.high)
    return Borne(_smallest({share: cost.high for share, cost in costs.items()}, bound),
                 _smallest({share: cost.value for share, cost in costs.items()}, bound), untold)


def _smallest(values: Mapping[float, float], bound: float) -> float:
    """Return the smallest share at which, and at all larger ones, the value lies below a bound; NaN for none."""
    found = math.nan
    for share, value in sorted(values.items(), reverse=True):
        if not value < bound:
            break
        found = share
    return found


def measures(entries: Sequence[Entry], runs: Sequence[Kept], study: Study) -> pd.DataFrame:
    """Return a row for each run: dataset, share, epsilon, method, setting, seed, valid (accuracy of all on the
    validation part), everybody and accuracy (of all and of the group on the test part), records (of the group there).
    """
    rows = []
    for entry, run in zip(entries, runs, strict=True):
        at_end, group = _at_end(run.metrics), study.data[entry.dataset].group
        rows.append({**entry._asdict(), "seed": entry.experiment.seed, "valid": at_end["valid", ALL, "accuracy"],
                     "everybody": at_end["test", ALL, "accuracy"], "accuracy": at_end["test", group, "accuracy"],
                     "records": at_end["test", group, "records"]})
    return pd.DataFrame(rows).drop(columns="experiment")


def _at_end(metrics: pd.DataFrame) -> dict[tuple[str, str, str], float]:
    """Return the figures of the end of a run by part, group and metric."""
    last = metrics[metrics["round"] == metrics["round"].max()]
    return dict(zip(zip(last["split"], last["group"], last["metric"], strict=True), last["value"], strict=True))


def chosen(measured: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the value of the highest mean validation accuracy over all seeds, by data set, share,
    epsilon and method.

    Args:
        measured: What `measures` returned.
    """
    means = measured.groupby([*_AT, "setting"], sort=False)["valid"].mean()
    best = means.groupby(level=_AT, sort=False).idxmax().tolist()
    return measured.merge(pd.DataFrame(best, columns=[*_AT, "setting"]))


def costs(taken: pd.DataFrame) -> pd.DataFrame:
    """Return the private runs with their cost: the group's accuracy without privacy with the same share and seed, less
    that with it.

    Args:
        taken: What `chosen` returned.
    """
    without = taken[taken["method"] == REFERENCE][["dataset", "share", "seed", "accuracy"]]
    private = taken[taken["method"] != REFERENCE]
    both = private.merge(without, on=["dataset", "share", "seed"], suffixes=("", "_without"))
    return both.assign(cost=both["accuracy_without"] - both["accuracy"]).drop(columns="accuracy_without")


def surface(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1,
            file: Path = CONFIG) -> str:
    """Run everything, write it to `out`, and return what was found in a sentence for each data set.

    `out` gets costs.csv (what was chosen, by seed), README.md, a picture of each data set and environment.json; kept
    runs are not repeated. Raises what `simulations.reproductions.frontier.frontier` does.
    """
    study = load(request, file)
    entries = plan(study, request.device)
    folder = request.begin(NAME, out)
    experiments = [entry.experiment for entry in entries]
    taken = chosen(measures(entries, kept_runs(experiments, folder, on_round, jobs), study))
    paid = costs(taken)
    write_text(out / "costs.csv", to_csv(paid))
    for dataset in study.data:
        write_text(out / f"{dataset}.svg", drawing(picture(dataset, study, paid[paid["dataset"] == dataset])))
    write_json(out / "environment.json", environment(experiments))
    write_text(out / "README.md", page(study, taken, paid, request, versions(folder, experiments)))
    return " ".join(findings(study, paid))


def estimates(paid: pd.DataFrame) -> dict[float, dict[str, dict[float, Estimate]]]:
    """Return one data set's mean cost over seeds with its interval, by epsilon, method and share."""
    found: dict[float, dict[str, dict[float, Estimate]]] = {}
    for (epsilon, method, share), own in paid.groupby(["epsilon", "method", "share"], sort=False):
        by_method = found.setdefault(float(str(epsilon)), {})
        by_method.setdefault(str(method), {})[float(str(share))] = over_seeds(own["cost"].tolist())
    return found


def findings(study: Study, paid: pd.DataFrame) -> Iterator[str]:
    """Yield for each data set from which share on methods' costs are borne, epsilons of the same answer together."""
    for dataset, own in paid.groupby("dataset", sort=False):
        epsilons: dict[str, list[str]] = {}
        for epsilon, by_method in estimates(own).items():
            epsilons.setdefault(_from_shares(by_method, study.bearable), []).append(f"{epsilon:g}")
        said = [f"at epsilon {', '.join(each)} {answer}" for answer, each in epsilons.items()]
        yield (f"{dataset}: the cost of group {study.data[str(dataset)].group} is told to be below {study.bearable:g} "
               f"{'; '.join(said)}.")


def _from_shares(by_method: Mapping[str, Mapping[float, Estimate]], bound: float) -> str:
    """Say from which share on methods' costs are borne, those of one share together, and of which methods nowhere."""
    methods: dict[float, list[str]] = {}
    for name, by_share in by_method.items():
        share = borne(by_share, bound).share
        methods.setdefault(math.inf if math.isnan(share) else share, []).append(name)
    if len(methods) == 1:
        ((share, _),) = methods.items()
        return f"from {_percent(share)} on with every method" if math.isfinite(share) else "with no method at any share"
    return ", ".join(f"from {_percent(share)} on with {', '.join(names)}" if math.isfinite(share) else
                     f"at no share with {', '.join(names)}" for share, names in sorted(methods.items()))


def picture(dataset: str, study: Study, paid: pd.DataFrame) -> Figure:
    """Return the cost by share, a panel for each method and a line for each epsilon, all on one scale."""
    thinned = study.data[dataset]
    y = Scale(f"cost of {thinned.group}", guide=study.bearable)
    ticks = {share: _percent(share) for share in thinned.shares}
    by_epsilon = estimates(paid)
    panels = []
    for method in study.methods:
        series = [Series(f"epsilon {epsilon:g}", place, tuple(
            Point(Estimate(share), cost) for share, cost in sorted(by_method[method].items())))
            for place, (epsilon, by_method) in enumerate(by_epsilon.items())]
        panels.append(Panel(method, Scale(f"{method}: share of {thinned.group}", log=True, ticks=ticks), y,
                            tuple(series)))
    return Figure(dataset, f"{dataset}: accuracy that {thinned.group} loses to privacy, by its share of the training "
                  "records", "", tuple(panels), same="y")


def page(study: Study, taken: pd.DataFrame, paid: pd.DataFrame, request: Request, made_with: str) -> str:
    """Return the page; `taken` is what `chosen` returned, `paid` what `costs` did."""
    lines = [f"# {request.title(_TITLE)}", "", *(f"- {line}" for line in findings(study, paid)), ""]
    for dataset in study.data:
        lines += [f"![Cost by share, epsilon and method, {dataset}]({dataset}.svg)", ""]
    lines += [f"`{request.command(NAME, study.seeds)}`", "", made_with, "", *request.left_out(study.text),
              *([f"Not run here: {', '.join(study.others)}.", ""] if study.others else []), *_explained(study)]
    for dataset in study.data:
        lines += _section(study, dataset, *(frame[frame["dataset"] == dataset] for frame in (taken, paid)))
    return "\n".join(lines)


def _section(study: Study, dataset: str, taken: pd.DataFrame, paid: pd.DataFrame) -> Iterator[str]:
    """Yield what is told of one data set."""
    thinned = study.data[dataset]
    yield from (f"## {dataset}", "",
                f"Batches of {_percent(thinned.batch)} of the training records; {_words(thinned.settings)}; learning "
                f"rates {_list(thinned.learning_rates)}.", "")
    yield from (*_numbers(study, dataset, paid), *_without(study, dataset, taken), *_all_costs(study, paid))


def _explained(study: Study) -> Iterator[str]:
    """Yield what was done, and what the figures are worth."""
    bound = f"{study.bearable:g}"
    yield from (
        f"A group's cost is its accuracy without privacy less that with it: means of {study.seeds} seeds on the test "
        "part, paired by seed, ± half a 95 % t-interval (bands in the pictures); negative costs are gains. A method's "
        f"number is the smallest share tried at which, and at all larger shares tried, the whole interval lies below "
        f"{bound}. Where an interval holds {bound} it cannot be told whether the cost is below; nothing is taken off "
        "for the number of intervals.", "",
        "The group is thinned out in the training part alone: other training records, the validation and the test part "
        "stay as they are, so with a smaller share there are also fewer records. Batches are a fixed share of the "
        "records. Each method, and training without privacy, has the value of what it tunes with the highest mean "
        "accuracy of all on the validation part, where the group is as frequent as in the data; intervals do not hold "
        "that choice. Epsilon is of a simulation with seeds. A cost is small, too, where the group has little to lose: "
        "see its accuracy without privacy.", "",
        f"Every run has {_words(study.settings)}. Methods have: "
        + "; ".join(f"{name}: {_own(method)}" for name, method in study.methods.items()) + ".", "")


def _own(method: Method) -> str:
    """Say what a method tunes, and its own settings."""
    tried = f"{method.option} {_list(method.tried)}" if method.option else "the learning rate tuned"
    return ", ".join(filter(None, [tried, _words(method.settings.get("options", {}))]))


def _words(settings: Mapping[str, Any]) -> str:
    """Return settings in words."""
    return ", ".join(f"{name} {_list(value) if isinstance(value, list) else value}" for name, value in settings.items())


def _list(values: Iterable[float]) -> str:
    """Return numbers in words."""
    return ", ".join(f"{value:g}" for value in values)


def _numbers(study: Study, dataset: str, paid: pd.DataFrame) -> Iterator[str]:
    """Yield one data set's numbers: a row for each method, a column for each epsilon."""
    by_epsilon = estimates(paid)
    rows = [(method, *(_number(borne(by_method[method], study.bearable)) for by_method in by_epsilon.values()))
            for method in study.methods]
    yield from (f"The smallest share of {study.data[dataset].group} from which on its cost is told to be below "
                f"{study.bearable:g} (in brackets: by the mean alone, where that is another, and shares at which it "
                "cannot be told):", "",
                markdown(Table(columns=("method", *(f"epsilon {epsilon:g}" for epsilon in by_epsilon)), rows=rows)), "")


def _number(found: Borne) -> str:
    """Return a method's number, with what the seeds cannot tell."""
    notes = []
    if not math.isnan(found.by_mean) and found.by_mean != found.share:
        notes.append(f"mean: {_percent(found.by_mean)}")
    if found.untold:
        notes.append(f"not told at {', '.join(map(_percent, found.untold))}")
    return ("none" if math.isnan(found.share) else _percent(found.share)) + (f" ({'; '.join(notes)})" if notes else "")


def _without(study: Study, dataset: str, taken: pd.DataFrame) -> Iterator[str]:
    """Yield one data set's accuracies without privacy, by share."""
    own, group = taken[taken["method"] == REFERENCE], study.data[dataset].group
    rows = [(_percent(float(str(share))), _mean(each["accuracy"]), _mean(each["everybody"]),
             _setting(study, REFERENCE, each)) for share, each in own.groupby("share")]
    columns = ("share", f"accuracy of {group}", "accuracy of all", "learning rate")
    yield from (f"Without privacy, on {own['records'].min():.0f} or more test records of {group} (edge: the smallest "
                "or largest value that was tried):", "", markdown(Table(columns=columns, rows=rows)), "")


def _all_costs(study: Study, paid: pd.DataFrame) -> Iterator[str]:
    """Yield one data set's costs: a row for each epsilon and method, a column for each share, with what was chosen."""
    shares = sorted(paid["share"].unique())
    rows = []
    for (epsilon, method), own in paid.groupby(["epsilon", "method"], sort=False):
        each = [own[own["share"] == share] for share in shares]
        rows.append((f"{epsilon:g}", str(method), *(f"{_mean(at['cost'])}, {_setting(study, str(method), at)}"
                                                    for at in each)))
    yield from ("Costs, each with the value that was chosen:", "",
                markdown(Table(columns=("epsilon", "method", *map(_percent, shares)), rows=rows)), "")


def _setting(study: Study, method: str, own: pd.DataFrame) -> str:
    """Return the chosen value, marked at an edge of those that were tried: a better one may lie beyond."""
    value, tried = float(own["setting"].iloc[0]), [*study.tried(str(own["dataset"].iloc[0]), method)]
    return f"{value:g}{' (edge)' * (len(tried) > 1 and value in (min(tried), max(tried)))}"


def _percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:g} %"


def _mean(values: pd.Series[float]) -> str:
    """Return a mean with half its interval."""
    found = over_seeds(values.tolist())
    return f"{found.value:.3f} ± {(found.high - found.low) / 2:.3f}"
