"""A fair fight: every method tuned over the same grid at the same epsilon, beside the published settings.

The papers train dpsgd with a learning rate of 0.01, at which clipped gradients hardly move the model, and other methods
with a larger one or with Adam. Here every method tries the same learning rates and clip norms. The setting with the
highest mean accuracy on the validation part is kept; only then is the test part used, with more seeds than chose.
`fedfair reproduce fair-fight`.

The fair fight as a page to read: what tuning changes, what it cost, and what is left of the disparate impact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from fedfair.accounting.log import EventLog
from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.table import Table, markdown
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import OnRound
from simulations.reproductions.request import EVERYTHING, Kept, Request, kept_runs, versions
from simulations.reproductions.tuning import CONFIG, NAME, PUBLISHED, Entry, Tuning, confirm, load, plan
from simulations.results.environment import environment
from simulations.statistics.over_seeds import over_seeds, wilcoxon_less
from simulations.statistics.summary import REFERENCE, final_part

_SUBJECT = "dpsgd"


def page(tuning: Tuning, results: pd.DataFrame, chosen: pd.DataFrame, clip_norms: pd.DataFrame, costs: pd.DataFrame,
         request: Request, made_with: str) -> str:
    """Return the page; results, chosen, clip_norms and costs are those of `simulations.reproductions.fair_fight`, and
    `made_with` names the versions of the program.
    """
    lines = [f"# {request.title('A fair fight')}", "", f"`{request.command(NAME, tuning.seeds)}`", "", made_with, "",
             f"Every method with the settings of {tuning.preset}, and tuned over the learning rates "
             f"{_list(tuning.learning_rates)} and the clip norms {_list(tuning.clip_norms)} at the same epsilon, by "
             f"its mean accuracy on the validation part over {_seeds(len(tuning.choosing))}. The figures are means on "
             f"the test part, ± half a 95 % t-interval over {_seeds(tuning.seeds)}, for each data set by itself. "
             f"Impact is accuracy parity less that of {REFERENCE} with the same seed, tuned like the method.", "",
             *request.left_out(tuning.text)]
    lines += [*(f"- {line}" for line in findings(results)), ""]
    for dataset in results["dataset"].unique():
        own = _table(results[results["dataset"] == dataset], chosen[chosen["dataset"] == dataset])
        lines += [f"## {dataset}", "", markdown(own), ""]
    return "\n".join([*lines, *_clip_norms(clip_norms), *_costs(costs)])


def findings(results: pd.DataFrame) -> list[str]:
    """Say what tuning leaves of dpsgd's disparate impact on each data set; nothing without dpsgd and sgd."""
    lines = []
    for dataset in results["dataset"].unique():
        runs = results[(results["dataset"] == dataset) & (results["strategy"] == _SUBJECT)].set_index("seed")
        published, tuned = (runs[runs["version"] == version]["impact"].sort_index() for version in (PUBLISHED, "tuned"))
        if len(tuned) and not tuned.isna().any():
            lines.append(_finding(str(dataset), published.tolist(), tuned.tolist()))
    return lines


def _finding(dataset: str, published: list[float], tuned: list[float]) -> str:
    """Say what one data set shows: the intervals, and what follows from them."""
    before, after = over_seeds(published), over_seeds(tuned)
    taken = over_seeds([first - second for first, second in zip(published, tuned, strict=True)])
    p = wilcoxon_less(tuned, published)
    return (f"{dataset}: {_SUBJECT}'s impact on accuracy parity is {_signed(before)} as published and {_signed(after)} "
            f"tuned, so that tuning takes away {_signed(taken)}: {_verdict(before, after, taken)} (tuned smaller: "
            f"p = {p:.3f}, at best {2.0 ** -len(tuned):.3f}).")


def _verdict(before: Estimate, after: Estimate, taken: Estimate) -> str:
    """Say whether the impact comes from the settings: only if what tuning takes away, seed by seed, is above zero.

    One interval with zero in it and another without say nothing about their difference (Gelman and Stern 2006).
    """
    if not _above_zero(before):
        return "even as published it is not distinguishable from zero"
    if _above_zero(taken) and _above_zero(after):
        return f"{after.value / before.value:.0%} of it is left, the rest comes from the settings"
    if _above_zero(taken) and _above_zero(Estimate(-after.value, -after.high, -after.low)):
        return "it comes from the settings, and after tuning the difference has the opposite sign"
    if _above_zero(taken):
        return "it comes from the settings, and what is left is not distinguishable from zero"
    if _above_zero(after):
        return "what is left is not distinguishable from all of it"
    return "neither that nor what is left is distinguishable from zero, so more seeds are needed to say"


def _table(results: pd.DataFrame, chosen: pd.DataFrame) -> Table:
    """Return the table of one data set's methods, published and tuned."""
    rows: list[tuple[str, ...]] = []
    edges = set(chosen.loc[chosen["at_edge"], "strategy"])
    for strategy in results["strategy"].unique():
        for version in (PUBLISHED, "tuned"):
            runs = results[(results["strategy"] == strategy) & (results["version"] == version)]
            first = runs.iloc[0]
            clip = "" if strategy == REFERENCE else f", C {first['clip_norm']:g}"
            edge = " (edge of the grid)" if version == "tuned" and strategy in edges else ""
            epsilon = "none" if math.isinf(runs["epsilon"].max()) else up(runs["epsilon"].max(), ".2f")
            cells = (_mean(runs[name].tolist()) for name in ("accuracy", "accuracy_parity", "impact"))
            rows.append((strategy, f"{version}: lr {first['learning_rate']:g}{clip}{edge}", epsilon, *cells))
    return Table(columns=("method", "setting", "epsilon", "accuracy", "accuracy parity", "impact"), rows=rows)


def _clip_norms(best: pd.DataFrame) -> Iterator[str]:
    """Yield what a clip norm changes once its learning rate is tuned; nothing if there is only one."""
    tried = sorted(best["clip_norm"].unique())
    if len(tried) < 2:
        return
    yield from ("## What the clip norm changes", "", "Mean test accuracy of each clip norm's best learning rate, "
                "chosen on the validation part. The last column is the largest less the smallest.", "")
    rows: list[tuple[str, ...]] = []
    for (dataset, strategy), own in best.groupby(["dataset", "strategy"], sort=False):
        cells = (f"{row.accuracy:.4f} (lr {row.learning_rate:g})" for row in own.sort_values("clip_norm").itertuples())
        difference = own["accuracy"].max() - own["accuracy"].min()
        rows.append((str(dataset), str(strategy), *cells, f"{difference:.4f}"))
    columns = ("data set", "method", *(f"C {clip_norm:g}" for clip_norm in tried), "difference")
    yield from (markdown(Table(columns=columns, rows=rows)), "")


def _costs(costs: pd.DataFrame) -> Iterator[str]:
    """Yield what the search cost."""
    yield from ("## What tuning cost", "", "The epsilon of a tuned method is that of its last run alone. Every setting "
                "that was tried is a private run on the same records: where the search must be paid for, it costs the "
                "last column, unless there is a better argument than composition. The validation records that choose "
                "are not protected.", "")
    rows = [(row["dataset"], row["strategy"], str(row["settings"]), up(row["epsilon"], ".2f"),
             up(row["epsilon_of_all"], ".2f")) for row in costs.to_dict("records")]
    columns = ("data set", "method", "settings tried", "epsilon of one run", "of all")
    yield from (markdown(Table(columns=columns, rows=rows)), "")


def _seeds(number: int) -> str:
    """Return a number of seeds in words."""
    return "one seed" if number == 1 else f"{number} seeds"


def _above_zero(interval: Estimate) -> bool:
    """Return whether a whole interval is above zero."""
    return interval.low > 0


def _signed(interval: Estimate) -> str:
    """Return an interval of a difference in words."""
    return f"{interval.value:+.3f} ± {_half(interval):.3f}"


def _mean(values: list[float]) -> str:
    """Return a mean with half its interval; "-" without a reference."""
    interval = over_seeds(values)
    return "-" if math.isnan(interval.value) else f"{interval.value:.3f} ± {_half(interval):.3f}"


def _half(interval: Estimate) -> float:
    """Return half the width of an interval; not a number for one seed."""
    return (interval.high - interval.low) / 2


def _list(numbers: tuple[float, ...]) -> str:
    """Return numbers separated by commas."""
    return ", ".join(f"{number:g}" for number in numbers)


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
    write_text(out / "README.md", page(
        tuning, results, chosen, clip_norms, costs, request,
        versions(folder, [entry.experiment for entry in [*entries, *others]])))
    return " ".join(findings(results))


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
