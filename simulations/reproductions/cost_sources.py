"""Where the cost of privacy comes from, and who pays: `fedfair reproduce cost-sources`.

DP-SGD differs from training without privacy in four ways. Gradients are clipped, noise is added, batches are small
samples, since sampling makes the noise cheaper, and steps are few, since each is charged. Here every combination of
the four trains to its end, tuned over the same learning rates. Without noise or clipping the rest stays: the same
batches, and the same noise on the mean gradient whatever the size of a batch.

A source's part of a group's cost is its Shapley value (Shapley 1953): what it adds to the cost, averaged over all
orders in which the four can come. So the parts sum to the whole cost, and a part that two make only together is halved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedfair.fairness.metrics import ALL
from simulations.files.atomic_files import write_json, write_text
from simulations.files.csv_text import to_csv
from simulations.plans.compare import OnRound
from simulations.reproductions.cost_sources_report import findings, page, picture
from simulations.reproductions.cost_study import CONFIG, NAME, NONE, SOURCES, Entry, combinations_of, load, named, plan
from simulations.reproductions.page_runs import Kept, kept_runs, versions
from simulations.reproductions.request import EVERYTHING, Request
from simulations.results.environment import environment
from simulations.statistics.summary import final_part


def measures(entries: Sequence[Entry], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return a row for each run and group, and for all together: dataset, combination, seed, learning_rate, group,
    valid (accuracy of all on the validation part) and accuracy (of the group on the test part).
    """
    rows = []
    for (dataset, combination, experiment), run in zip(entries, runs, strict=True):
        of_run = run.metrics.assign(dataset=dataset, strategy=experiment.strategy, seed=experiment.seed)
        valid, test = (final_part(of_run, split).iloc[0] for split in ("valid", "test"))
        shared = {"dataset": dataset, "combination": combination, "seed": experiment.seed,
                  "learning_rate": experiment.learning_rate, "valid": valid[ALL, "accuracy"]}
        accuracies = test.xs("accuracy", level=1)
        rows += [{**shared, "group": group, "accuracy": accuracy} for group, accuracy in accuracies.items()]
    return pd.DataFrame(rows)


def choose(tried: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the learning rate of the highest mean validation accuracy, by data set and combination."""
    alone = tried[tried["group"] == ALL]
    means = alone.groupby(["dataset", "combination", "learning_rate"], sort=False)["valid"].mean()
    best = means.groupby(level=["dataset", "combination"], sort=False).idxmax()
    return {(dataset, combination): float(rate) for dataset, combination, rate in best}


def costs(measured: pd.DataFrame) -> pd.DataFrame:
    """Return what each combination costs: the accuracy that training without privacy has more with the same seed.

    Args:
        measured: What `measures` returned, of one learning rate for each data set and combination.

    Returns:
        A row for each data set, group and seed, a column for each combination.
    """
    wide = measured.pivot_table(index=["dataset", "group", "seed"], columns="combination", values="accuracy",
                                sort=False)
    return wide.rsub(wide[NONE], axis=0)


def parts(of_combinations: pd.DataFrame) -> pd.DataFrame:
    """Return the Shapley value of every source, and their sum as "together".

    Args:
        of_combinations: What `costs` returned.

    Returns:
        A row for each data set, group and seed.

    Examples:
        >>> cost = {name: 0.1 * len(sources) + 0.2 * ({"noise", "steps"} <= {*sources})
        ...         for name, sources in combinations_of(SOURCES).items()}
        >>> parts(pd.DataFrame([cost])).round(3).iloc[0].to_dict()
        {'clipping': 0.1, 'noise': 0.2, 'sampling': 0.1, 'steps': 0.2, 'together': 0.6}
    """
    values = {}
    for source in SOURCES:
        others = [each for each in SOURCES if each != source]
        added = [_weight(len(before)) * (of_combinations[named((*before, source))] - of_combinations[name])
                 for name, before in combinations_of(others).items()]
        values[source] = pd.concat(added, axis=1).sum(axis=1)
    return pd.DataFrame({**values, "together": of_combinations[named(SOURCES)]})


def _weight(before: int) -> float:
    """Return the share of the orders in which exactly these come before a source."""
    count = len(SOURCES)
    return math.factorial(before) * math.factorial(count - before - 1) / math.factorial(count)


def cost_sources(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1,
                 file: Path = CONFIG) -> str:
    """Run everything, write it to `out`, and return what was found in a sentence for each data set.

    `out` gets runs.csv (every run and group), parts.csv (by data set, group and seed), README.md, a picture of each
    data set and environment.json; kept runs are not repeated. Raises what `simulations.reproductions.fair_fight` does.
    """
    study = load(request, file)
    folder = request.begin(NAME, out)
    tried = plan(study, request.device)
    measured = measures(tried, kept_runs([entry.experiment for entry in tried], folder, on_round, jobs))
    chosen = choose(measured)
    others = plan(study, request.device, chosen)
    confirmed = kept_runs([entry.experiment for entry in others], folder, on_round, jobs)
    measured = pd.concat([measured, *([measures(others, confirmed)] if others else [])], ignore_index=True)
    rates = pd.DataFrame([(*key, rate) for key, rate in chosen.items()],
                         columns=["dataset", "combination", "learning_rate"])
    taken = measured.merge(rates)
    shares = parts(costs(taken))
    experiments = [entry.experiment for entry in [*tried, *others]]
    write_text(out / "runs.csv", to_csv(measured))
    write_text(out / "parts.csv", to_csv(shares.reset_index()))
    for dataset, own in shares.groupby("dataset", sort=False):
        write_text(out / f"{dataset}.svg", picture(str(dataset), own))
    write_json(out / "environment.json", environment(experiments))
    write_text(out / "README.md", page(study, taken, chosen, shares, request, versions(folder, experiments)))
    return " ".join(findings(study, shares))
