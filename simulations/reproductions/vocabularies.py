"""Vocabularies of participants and of models, and what privacy costs each participant: measured for `shakespeare`.

Bagdasaryan and Shmatikov 2019 (poster), "Federated Learning".
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import scipy

from fedfair.datasets import shakespeare
from fedfair.fairness.metrics import ALL

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

    `final` as `simulations.results.summary.final_test` makes it.
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
