"""A fair fight: every method tuned over the same grid at the same epsilon, beside the published settings.

The papers train dpsgd with a learning rate of 0.01, at which clipped gradients hardly move the model, and other methods
with a larger one or with Adam. Here every method tries the same learning rates and clip norms. The setting with the
highest mean accuracy on the validation part is kept; only then is the test part used, with more seeds than chose.
`fedfair reproduce fair-fight`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.log import EventLog
from fedfair.fairness.metrics import ALL
from simulations.reproductions import fair_fight_report as report
from simulations.reproductions.request import EVERYTHING, Request
from simulations.reproductions.store import Kept, OnRound, kept_runs, versions
from simulations.reproductions.tuning import CONFIG, NAME, PUBLISHED, Entry, confirm, load, plan
from simulations.results.atomic_files import write_json, write_text
from simulations.results.csv_text import to_csv
from simulations.results.environment import environment
from simulations.results.reference import REFERENCE
from simulations.results.summary import final_part

_SETTING = ["dataset", "strategy", "setting", "learning_rate", "clip_norm"]
"""The columns that identify a point of a grid, whatever the seed."""


def fair_fight(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1,
               file: Path = CONFIG) -> str:
    """Run everything, write it to `out`, and return the finding about dpsgd in a sentence for each data set.

    `out` gets grid.csv (every run), results.csv (published and tuned), README.md and environment.json; kept runs are
    not repeated. Raises `FileExistsError` if the folder holds something else, another `OSError` if it or that of the
    runs cannot be written, and what `kept_runs` raises.
    """
    tuning = load(request, file)
    entries = plan(tuning, request.device)
    folder = request.begin(NAME, out)
    runs = kept_runs([entry.experiment for entry in entries], folder, on_round, jobs)
    tried = measures(entries, runs)
    chosen = choose(tried)
    others = confirm(tuning, chosen[["dataset", "strategy", "setting"]].itertuples(index=False), request.device)
    confirmed = measures(others, kept_runs([entry.experiment for entry in others], folder, on_round, jobs))
    measured = pd.concat([tried, confirmed], ignore_index=True)
    results = chosen_and_published(measured, chosen)
    costs, clip_norms = tuning_costs(entries, runs), best_by_clip_norm(tried)
    write_text(out / "grid.csv", to_csv(measured))
    write_text(out / "results.csv", to_csv(results))
    write_json(out / "environment.json", environment([entry.experiment for entry in [*entries, *others]]))
    write_text(out / "README.md", report.page(
        tuning, results, chosen, clip_norms, costs, request,
        versions(folder, [entry.experiment for entry in [*entries, *others]])))
    return " ".join(report.findings(results))


def measures(entries: Sequence[Entry], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return one row for each run: dataset, strategy, setting, seed, learning_rate, clip_norm, epsilon, and at its end
    valid (accuracy on the validation part), and on the test part accuracy and accuracy_parity.
    """
    rows = []
    for (dataset, strategy, setting, experiment), run in zip(entries, runs, strict=True):
        named = run.metrics.assign(dataset=dataset, strategy=strategy, seed=experiment.seed)
        valid, test = (final_part(named, split).iloc[0] for split in ("valid", "test"))
        rows.append({"dataset": dataset, "strategy": strategy, "setting": setting, "seed": experiment.seed,
                     "learning_rate": experiment.learning_rate, "clip_norm": experiment.clip_norm,
                     "epsilon": run.ledger.epsilon(), "valid": valid[ALL, "accuracy"],
                     "accuracy": test[ALL, "accuracy"], "accuracy_parity": test[ALL, "accuracy_parity"]})
    return pd.DataFrame(rows)


def choose(measured: pd.DataFrame) -> pd.DataFrame:
    """Choose for each data set and strategy the setting of the grid with the highest mean validation accuracy, the
    first of several. Columns dataset, strategy, setting, learning_rate, clip_norm, at_edge.

    `at_edge` is true if the learning rate is the smallest or largest tried: a better one may lie beyond.
    """
    grid = measured[measured["setting"] != PUBLISHED]
    rates, chosen = grid["learning_rate"], _best(grid, ["dataset", "strategy"])
    return chosen.assign(at_edge=chosen["learning_rate"].isin([rates.min(), rates.max()]))


def best_by_clip_norm(measured: pd.DataFrame) -> pd.DataFrame:
    """Choose the learning rate of each private method by clip norm: for each data set, strategy and clip norm return
    the setting with the highest mean validation accuracy, and its mean test accuracy. Columns dataset, strategy,
    setting, learning_rate, clip_norm, accuracy.
    """
    grid = measured[(measured["setting"] != PUBLISHED) & (measured["strategy"] != REFERENCE)]
    means = grid.groupby(_SETTING, sort=False)["accuracy"].mean()
    return _best(grid, ["dataset", "strategy", "clip_norm"]).merge(means.reset_index())


def _best(grid: pd.DataFrame, each: list[str]) -> pd.DataFrame:
    """Return the setting with the highest mean validation accuracy, the first of several, by the columns `each`."""
    means = grid.groupby(_SETTING, sort=False)["valid"].mean()
    best = means.groupby(level=each, sort=False).idxmax()
    return pd.DataFrame(best.tolist(), columns=means.index.names)


def chosen_and_published(measured: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the published and the chosen settings, `version` "published" or "tuned".

    `impact` is the run's accuracy parity less that of sgd of the same version, data set and seed.
    """
    published = measured[measured["setting"] == PUBLISHED].assign(version=PUBLISHED)
    tuned = measured.merge(chosen[["dataset", "strategy", "setting"]]).assign(version="tuned")
    both = pd.concat([published, tuned], ignore_index=True)
    keys = ["version", "dataset", "seed"]
    reference = both[both["strategy"] == REFERENCE].set_index(keys)["accuracy_parity"]
    theirs = reference.reindex(pd.MultiIndex.from_frame(both[keys])).to_numpy()
    return both.assign(impact=both["accuracy_parity"] - theirs)


def tuning_costs(entries: Sequence[Entry], runs: Sequence[Kept]) -> pd.DataFrame:
    """Return what the search cost: dataset, strategy, settings (tried), epsilon (of one run), epsilon_of_all.

    `epsilon_of_all` is that of the private runs over the grid together, on the same training records: the price of
    choosing among them, without a better argument. The validation records are not protected at all.
    """
    rows, tried = [], [(e, run.ledger) for e, run in zip(entries, runs, strict=True)
                       if e.setting != PUBLISHED and e.experiment.seed == 0 and e.strategy != REFERENCE]
    for dataset, strategy in dict.fromkeys((e.dataset, e.strategy) for e, _ in tried):
        ledgers = [ledger for e, ledger in tried if (e.dataset, e.strategy) == (dataset, strategy)]
        rows.append({"dataset": dataset, "strategy": strategy, "settings": len(ledgers),
                     "epsilon": max(ledger.epsilon() for ledger in ledgers),
                     "epsilon_of_all": _together(ledgers).epsilon()})
    return pd.DataFrame(rows)


def _together(ledgers: Sequence[Ledger]) -> Ledger:
    """One ledger with the events of all."""
    joined = ledgers[0].holding(EventLog())
    for ledger in ledgers:
        for event, steps in ledger.events.items():
            joined.record(event, steps)
    return joined
