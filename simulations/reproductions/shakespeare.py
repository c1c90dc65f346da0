"""Who pays for participant-level privacy: Bagdasaryan and Shmatikov 2019 (poster), "Federated Learning".

`fedfair reproduce shakespeare --out DIR`.

They trained a next-word model on 80,000 participants of Reddit, and saw that the private model has a smaller active
vocabulary than the non-private one, and that it suits participants with simpler vocabularies better. Here 171 speaking
roles are the participants: fedavg against dp-fedavg with the same splits, seeds and settings.

With three seeds we make the first observation, and not the second: how simple a role's vocabulary is has next to
nothing to do with what privacy costs it (rank correlation -0.05). More training would not change that: against the most
frequent continuation of two words, which predicts 370 of the 1,000 words where fedavg predicts 58, and is right more
often, the correlation is no larger. No model learns from so small a text the rare words that privacy is thought to take
from those who use them, and the vocabularies differ little (71 to 80 distinct words in 100 in the outer quarters).

The federated experiment as a page to read: what privacy costs participants, by vocabulary.

Vocabularies of participants and of models, and what privacy costs each participant: measured for `shakespeare`.

Bagdasaryan and Shmatikov 2019 (poster), "Federated Learning".

The best non-private model of a small text: the most frequent word after the same one or two words.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import scipy

from fedfair.accounting import Ledger
from fedfair.accounting.figures import up
from fedfair.datasets import GroupedDataset, Parts
from fedfair.datasets.published import shakespeare
from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.svg import bar_chart
from simulations.drawing.table import Table, markdown
from simulations.files.atomic_files import write_json, write_text
from simulations.files.saved_files import to_csv
from simulations.plans.compare import OnRound, experiments
from simulations.reproductions.request import EVERYTHING, Request, kept_runs, versions
from simulations.results.environment import environment
from simulations.statistics.summary import final_test

REFERENCE, PRIVATE = "fedavg", "dp-fedavg"
QUARTERS = ("smallest", "smaller", "larger", "largest")
MEASURES = {"words": "distinct words spoken", "rarefied": "distinct words in 100"}
"""Two measures of a vocabulary: the plain one grows with the number of words a role speaks, the other does not."""

COLUMNS = (REFERENCE, PRIVATE, "cost", "excessive_risk", "relative_cost")
"""Columns by quarter: two accuracies, their difference, that of the losses, and the share of accuracy that is lost."""


def by_participant(final: pd.DataFrame, best: Mapping[int, pd.Series]) -> pd.DataFrame:
    """Return one row for each seed and participant: both test accuracies and the cost of privacy, the excessive risk
    (the private model's loss less the other's), and the vocabulary. `best_cost` is the cost beside the best non-private
    model of such a text, whose accuracies `best` has by seed (see `continuations`).
    """
    spoken = shakespeare.participants()
    columns = final.droplevel("dataset").loc[:, (list(spoken), ["accuracy", "loss"])]
    values = columns.stack("group", future_stack=True).unstack("strategy")
    accuracy, loss = values["accuracy"], values["loss"]
    frame: pd.DataFrame = accuracy[[REFERENCE, PRIVATE]].assign(
        cost=accuracy[REFERENCE] - accuracy[PRIVATE], excessive_risk=loss[PRIVATE] - loss[REFERENCE])
    frame = frame.reset_index().rename(columns={"group": "participant"}).rename_axis(columns=None)
    known = pd.concat(best, names=["seed", "group"]).reindex(pd.MultiIndex.from_frame(frame[["seed", "participant"]]))
    frame["best_cost"] = known.to_numpy() - frame[PRIVATE]
    frame["words"] = frame["participant"].map({role: len(counts) for role, counts in spoken.items()})
    frame["rarefied"] = frame["participant"].map({r: shakespeare.rarefied(c.values()) for r, c in spoken.items()})
    return frame


def by_quarter(participants: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return one row for each quarter of the participants by vocabulary: means over participants, then mean, deviation
    and standard error over seeds.
    """
    ranks = participants.groupby("seed")[measure].rank(method="first")
    quarter = ((ranks - 1) * 4 // participants.groupby("seed")[measure].transform("size")).astype(int)
    seeds = participants.groupby([quarter.rename("quarter"), "seed"])[[measure, *COLUMNS[:-1]]].mean()
    seeds["relative_cost"] = seeds["cost"] / seeds[REFERENCE]
    table = seeds.groupby("quarter").agg(["mean", "std", "sem"])
    table.columns = ["_".join(names) for names in table.columns]
    return table.set_axis(list(QUARTERS)).rename_axis("quarter").reset_index()


def correlations(participants: pd.DataFrame, measure: str, of: str) -> pd.Series:
    """Return Spearman's rank correlation of the vocabulary with the column `of`, for each seed."""
    return participants.groupby("seed").apply(
        lambda rows: float(scipy.stats.spearmanr(rows[measure], rows[of]).statistic))


def active_vocabulary(final: pd.DataFrame) -> pd.DataFrame:
    """Return how many distinct words each model predicts on the test part: a row for each seed, a column a strategy.

    `final` as `simulations.statistics.summary.final_test` makes it.
    """
    return final.droplevel("dataset")[ALL, "predicted_classes"].unstack("strategy")[[REFERENCE, PRIVATE]]


def observations(participants: pd.DataFrame, active: pd.DataFrame) -> pd.DataFrame:
    """Return the poster's two observations, each with the mean and deviation of a figure that is positive where it is
    made, and whether it is made in every seed.
    """
    figures = {"the private model's active vocabulary is smaller (words fewer)": active[REFERENCE] - active[PRIVATE]}
    for measure, name in MEASURES.items():
        figures[f"participants with a simpler vocabulary lose less accuracy (Spearman's rho of {name} and cost)"] = (
            correlations(participants, measure, "cost"))
        figures[f"the same, beside the most frequent continuation ({name})"] = correlations(
            participants, measure, "best_cost")
    return pd.DataFrame([{"observation": name, "mean": values.mean(), "std": values.std(),
                          "seen": bool((values > 0).all())} for name, values in figures.items()])


def page(command: str, quarters: Mapping[str, pd.DataFrame], active: pd.DataFrame, observed: pd.DataFrame,
         ledger: Ledger, made_with: str) -> str:
    """Return the page; quarters by measure, active and observed are as in `simulations.reproductions.shakespeare`,
    and `made_with` names the versions of the program.
    """
    words = ", ".join(f"{name} {_spread(active[name].mean(), active[name].std(), '.0f')}" for name in active)
    spread = f" ± their deviation over {len(active)} seeds" if len(active) > 1 else ", one seed"
    lines = ["# Bagdasaryan and Shmatikov 2019 (poster), federated: who pays for participant-level privacy", "",
             f"`{command}`", "", made_with, "",
             f"{seen(observed)} Means over participants{spread}. The epsilon of {PRIVATE} is "
             f"{up(ledger.epsilon(), '.2f')} at delta {up(ledger.delta, '.6g')}, for a {ledger.protects} with all "
             f"records ({ledger.guarantee}).", "",
             "![What privacy costs, by vocabulary](picture.svg)", "",
             markdown(_observations(observed)), "", f"Distinct words that a model predicts: {words}.", ""]
    for measure, table in quarters.items():
        lines += [f"## By {MEASURES[measure]}", "", markdown(_table(measure, table)), ""]
    return "\n".join(lines)


def seen(observed: pd.DataFrame) -> str:
    """Say how many of the observations are made."""
    return f"{int(observed['seen'].sum())} of {len(observed)} observations are made in every seed."


def _observations(observed: pd.DataFrame) -> Table:
    """Return a table with a row for each observation."""
    rows = [(row["observation"], _spread(row["mean"], row["std"], ".3g"), "yes" if row["seen"] else "no")
            for row in observed.to_dict("records")]
    return Table(columns=("observation", "figure", "seen in every seed"), rows=rows)


def _table(measure: str, quarters: pd.DataFrame) -> Table:
    """Return a table with a row for each quarter of the participants."""
    rows: list[tuple[str, ...]] = []
    for row in quarters.to_dict("records"):
        cells = (_spread(row[f"{name}_mean"], row[f"{name}_std"], ".3f") if name == "excessive_risk" else
                 _spread(100 * row[f"{name}_mean"], 100 * row[f"{name}_std"], ".1f") for name in COLUMNS)
        rows.append((str(row["quarter"]), f"{row[f'{measure}_mean']:.0f}", *cells))
    columns = ("vocabulary", "words", f"{REFERENCE}, %", f"{PRIVATE}, %", "cost, %", "excess loss", "cost/accuracy, %")
    return Table(columns=columns, rows=rows)


def _spread(mean: float, deviation: float, form: str) -> str:
    """Return a mean with its deviation, or alone for one seed."""
    return f"{mean:{form}}" if math.isnan(deviation) else f"{mean:{form}} ± {deviation:{form}}"


def _reach(mean: float, deviation: float) -> Estimate:
    """Return a mean with one deviation to either side."""
    return Estimate(mean, mean - deviation, mean + deviation)


def drawing(quarters: Mapping[str, pd.DataFrame], active: pd.DataFrame) -> str:
    """Draw what privacy costs by vocabulary, and the active vocabularies, as SVG."""
    panels = {f"{name}, by {MEASURES[measure]}": {
        str(row["quarter"]): _reach(row[f"{of}_mean"], row[f"{of}_std"]) for row in table.to_dict("records")}
        for of, name in (("cost", "accuracy lost"), ("excessive_risk", "excess loss"))
        for measure, table in quarters.items()}
    panels["active vocabulary, words"] = {
        str(name): _reach(float(active[name].mean()), float(active[name].std())) for name in active}
    return bar_chart("What participant-level privacy costs, by the participants' vocabulary", panels)


_LEAST = 2  # how often a continuation must have been seen; below that, fewer words before it are used

Known = dict[tuple[int, ...], tuple[int, int]]
"""By the words before: the most frequent next word, and how often it came."""


def learned(train: GroupedDataset, words: int = 2) -> Known:
    """Count the continuations of up to `words` words in all records of all participants together."""
    seen: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for before, word in zip(train.x.tolist(), train.y.tolist(), strict=True):
        for length in range(words + 1):
            seen[tuple(before[len(before) - length:])][word] += 1
    return {before: counts.most_common(1)[0] for before, counts in seen.items()}


def predicted(known: Known, before: list[int], words: int = 2) -> int:
    """Predict the continuation of as many of the words `before` as were seen often enough."""
    for length in range(words, 0, -1):
        word, times = known.get(tuple(before[len(before) - length:]), (0, 0))
        if times >= _LEAST:
            return word
    return known[()][0]


def accuracies(parts: Parts) -> tuple[pd.Series, int]:
    """Return each participant's accuracy on the test part (participants are the groups of `parts`), and the number of
    distinct words predicted.
    """
    known, test = learned(parts.train), parts.test
    words = [predicted(known, before) for before in test.x.tolist()]
    right = pd.Series(words).eq(pd.Series(test.y.tolist()))
    names = pd.Series(test.group.tolist()).map(dict(enumerate(test.names)))
    return right.groupby(names).mean(), len(set(words))


NAME = "shakespeare"
_SEEDS = 3


def reproduce(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1) -> str:
    """Run both strategies, `jobs` runs at a time, write the tables, a picture, environment.json and README.md, and say
    how many observations are made.

    Kept runs are not run again. Raises `ValueError` for another data set and for a quick version, which does not exist,
    `FileExistsError` if the folder holds something else, another `OSError` if it or that of the runs cannot be written,
    and what `kept_runs` raises.
    """
    if request.quick:
        raise ValueError(f"{NAME} has no quick version: leave --quick out, or take --seeds 1")
    request.among((NAME,))
    planned = experiments([REFERENCE, PRIVATE], range(request.seeds or _SEEDS), None,
                          {"dataset": "shakespeare", "group": "role", "device": request.device})
    folder = request.begin(NAME, out)
    runs = kept_runs(planned, folder, on_round, jobs)
    final = final_test(pd.concat([run.metrics.assign(dataset=made.dataset, strategy=made.strategy, seed=made.seed)
                                  for made, run in zip(planned, runs, strict=True)]))
    best = {made.seed: accuracies(made.task.data())[0] for made in planned if made.strategy == REFERENCE}
    participants, active = by_participant(final, best), active_vocabulary(final)
    quarters = {measure: by_quarter(participants, measure) for measure in MEASURES}
    observed = observations(participants, active)
    tables = {"participants": participants, "active_vocabulary": active.reset_index(), "observations": observed,
              **{f"quarters_by_{measure}": table for measure, table in quarters.items()}}
    for name, table in tables.items():
        write_text(out / f"{name}.csv", to_csv(table))
    write_json(out / "environment.json", environment(planned))
    write_text(out / "picture.svg", drawing(quarters, active))
    write_text(out / "README.md", page(request.command(NAME, len(active)), quarters, active, observed, runs[-1].ledger,
                                       versions(folder, planned)))
    return seen(observed)
