"""Who pays for participant-level privacy: Bagdasaryan and Shmatikov 2019 (poster), "Federated Learning".

`fedfair reproduce shakespeare --out DIR`, or python -m simulations.reproductions.shakespeare --out DIR [--seeds N].

They trained a next-word model on 80,000 participants of Reddit, and saw that the private model has a smaller active
vocabulary than the non-private one, and that it suits participants with simpler vocabularies better. Here 171 speaking
roles are the participants: fedavg against dp-fedavg on the same splits and seeds, setting by setting the same.

With three seeds the first observation is made here, the second is not: how simple a role's vocabulary is has next to
nothing to do with what privacy costs it (rank correlation -0.05). It is not for want of training: against the most
frequent continuation of two words, which predicts 360 of the 1,000 words where fedavg predicts 58, and is right more
often, the correlation is no larger. So small a text teaches nobody the rare words that privacy is said to take from
those who use them, and the vocabularies differ little (71 to 80 distinct words in 100 in the outer quarters).
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import scipy
import typer
from rich.console import Console
from rich.table import Table

from fedfair.datasets import shakespeare
from fedfair.fairness import ALL
from simulations.commands.terminal import plain_errors
from simulations.compare import OnRound, compare, experiments
from simulations.files import write_text
from simulations.reproductions.bars import Bar, picture
from simulations.reproductions.continuations import accuracies
from simulations.result import Result, identified, refuse_other, save_comparison
from simulations.summary import final_test

NAME = "shakespeare"
REFERENCE, PRIVATE = "fedavg", "dp-fedavg"
QUARTERS = ("smallest", "smaller", "larger", "largest")
MEASURES = {"words": "distinct words spoken", "rarefied": "distinct words in 100"}
"""Two measures of a vocabulary: the plain one grows with what a role speaks, the other does not."""

COLUMNS = (REFERENCE, PRIVATE, "cost", "excessive_risk", "relative_cost")
"""What is told of each quarter: two accuracies, their difference, that of the losses, and the share that was lost."""

Out = Annotated[Path, typer.Option(help="Folder to save everything in.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ....")]


def by_participant(results: Sequence[Result]) -> pd.DataFrame:
    """One row for each seed and participant: both test accuracies and what privacy cost, the excessive risk (the
    private model's loss less the other's), and the vocabulary. `best_cost` is what it cost beside the best non-private
    model of such a text (see `continuations`).
    """
    final = final_test(identified(results)).droplevel("dataset")
    spoken = shakespeare.participants()
    values = final.loc[:, (list(spoken), ["accuracy", "loss"])].stack("group", future_stack=True).unstack("strategy")
    accuracy, loss = values["accuracy"], values["loss"]
    frame: pd.DataFrame = accuracy[[REFERENCE, PRIVATE]].assign(
        cost=accuracy[REFERENCE] - accuracy[PRIVATE], excessive_risk=loss[PRIVATE] - loss[REFERENCE])
    frame = frame.reset_index().rename(columns={"group": "participant"}).rename_axis(columns=None)
    best = {result.experiment.seed: accuracies(result.data)[0] for result in results}
    known = pd.concat(best, names=["seed", "group"]).reindex(pd.MultiIndex.from_frame(frame[["seed", "participant"]]))
    frame["best_cost"] = known.to_numpy() - frame[PRIVATE]
    frame["words"] = frame["participant"].map({role: len(counts) for role, counts in spoken.items()})
    frame["rarefied"] = frame["participant"].map({r: shakespeare.rarefied(c.values()) for r, c in spoken.items()})
    return frame


def by_quarter(participants: pd.DataFrame, measure: str) -> pd.DataFrame:
    """One row for each quarter of the participants by vocabulary: means over participants, then mean, deviation and
    standard error over seeds.
    """
    ranks = participants.groupby("seed")[measure].rank(method="first")
    quarter = ((ranks - 1) * 4 // participants.groupby("seed")[measure].transform("size")).astype(int)
    seeds = participants.groupby([quarter.rename("quarter"), "seed"])[[measure, *COLUMNS[:-1]]].mean()
    seeds["relative_cost"] = seeds["cost"] / seeds[REFERENCE]
    table = seeds.groupby("quarter").agg(["mean", "std", "sem"])
    table.columns = ["_".join(names) for names in table.columns]
    return table.set_axis(list(QUARTERS)).rename_axis("quarter").reset_index()


def correlations(participants: pd.DataFrame, measure: str, of: str) -> pd.Series:
    """For each seed, Spearman's rank correlation of the vocabulary with the column `of`."""
    return participants.groupby("seed").apply(
        lambda rows: float(scipy.stats.spearmanr(rows[measure], rows[of]).statistic))


def active_vocabulary(results: Sequence[Result]) -> pd.DataFrame:
    """How many distinct words each model predicts on the test part: one row for each seed, a column a strategy."""
    final = final_test(identified(results)).droplevel("dataset")
    return final[ALL, "predicted_classes"].unstack("strategy")[[REFERENCE, PRIVATE]]


def observations(participants: pd.DataFrame, active: pd.DataFrame) -> pd.DataFrame:
    """The poster's two observations, each with a figure by seed that is positive where it is made, and whether it is
    made in every seed.
    """
    figures = {"the private model's active vocabulary is smaller (words fewer)": active[REFERENCE] - active[PRIVATE]}
    for measure, told in MEASURES.items():
        figures[f"who has a simpler vocabulary loses less accuracy (Spearman's rho of {told} and cost)"] = correlations(
            participants, measure, "cost")
        figures[f"the same, beside the most frequent continuation ({told})"] = correlations(
            participants, measure, "best_cost")
    return pd.DataFrame([{"observation": name, "mean": values.mean(), "std": values.std(),
                          "seen": bool((values > 0).all())} for name, values in figures.items()])


@plain_errors
def main(out: Out, seeds: Seeds = 3) -> None:
    """As `fedfair reproduce shakespeare`."""
    print(f"{reproduce(out, seeds)} See {out / 'README.md'}.")


def reproduce(out: Path, seeds: int | None = None, device: str = "cpu", on_round: OnRound = lambda *_: None) -> str:
    """Run both strategies, by default with three seeds, and save the runs, the tables, a picture and README.md; returns
    how many observations are made.

    Raises `FileExistsError` if the folder holds something else, and what `simulations.run.run` raises.
    """
    seeds = seeds or 3
    settings: dict[str, Any] = {"dataset": "shakespeare", "group": "role", "device": device}
    described = {"strategies": [REFERENCE, PRIVATE], "seeds": list(range(seeds)), "settings": settings}
    refuse_other(out, described)
    results = compare(experiments([REFERENCE, PRIVATE], range(seeds), None, settings), on_round=on_round)
    participants, active = by_participant(results), active_vocabulary(results)
    quarters = {measure: by_quarter(participants, measure) for measure in MEASURES}
    save_comparison(results, described, out)
    write_text(out / "participants.csv", participants.to_csv(index=False))
    write_text(out / "active_vocabulary.csv", active.to_csv())
    observed = observations(participants, active)
    write_text(out / "observations.csv", observed.to_csv(index=False))
    for measure, table in quarters.items():
        write_text(out / f"quarters_by_{measure}.csv", table.to_csv(index=False))
    write_text(out / "picture.svg", _picture(quarters, active))
    said = f"{int(observed['seen'].sum())} of {len(observed)} observations are made in every seed."
    write_text(out / "README.md", _page(said, _told(results, quarters, participants, active), seeds))
    return said


def _page(said: str, told: str, seeds: int) -> str:
    """The page."""
    return "\n".join([
        "# Who pays for participant-level privacy: Bagdasaryan and Shmatikov 2019", "",
        f"`fedfair reproduce {NAME} --seeds {seeds} --out DIR`", "", said, "",
        "![What privacy costs, by vocabulary](picture.svg)", "", "```text", told.rstrip(), "```", ""])


def _told(results: Sequence[Result], quarters: dict[str, pd.DataFrame], participants: pd.DataFrame,
          active: pd.DataFrame) -> str:
    """The tables as text."""
    told = StringIO()
    console, ledger = Console(file=told, width=120), results[-1].ledger
    for measure, rows in quarters.items():
        table = Table(title=f"Accuracy in %, by {MEASURES[measure]} (mean over participants, ± deviation over "
                            f"{len(active)} seeds)", title_justify="left", box=None)
        for column in ("vocabulary", "words", REFERENCE, PRIVATE, "cost", "excess loss", "cost/accuracy"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in rows.to_dict("records"):
            table.add_row(str(row["quarter"]), f"{row[f'{measure}_mean']:.0f}",
                          *(_spread(row[f"{name}_mean"], row[f"{name}_std"], percent=name != "excessive_risk")
                            for name in COLUMNS))
        console.print(table)
        found = {of: correlations(participants, measure, of) for of in ("cost", "excessive_risk")}
        console.print("Spearman's correlation of the vocabulary: " + ", ".join(
            f"with {of.replace('_', ' ')} {_spread(rho.mean(), rho.std())}" for of, rho in found.items()) + "\n")
    console.print("Active vocabulary: " + ", ".join(
        f"{name} {active[name].mean():.0f}±{active[name].std():.0f} words" for name in active))
    console.print(f"{PRIVATE}: epsilon {ledger.epsilon():.2f} at delta {ledger.delta:g}, a {ledger.protects} with all "
                  f"records, {ledger.guarantee}")
    for row in observations(participants, active).to_dict("records"):
        console.print(f"{'seen' if row['seen'] else 'NOT seen'} in every seed: {row['observation']}: "
                      f"{row['mean']:.3g}±{row['std']:.2g}", highlight=False)
    return "\n".join(line.rstrip() for line in told.getvalue().splitlines())


def _spread(mean: float, deviation: float, percent: bool = False) -> str:
    """A mean with its deviation."""
    return f"{100 * mean:.1f}±{100 * deviation:.1f}" if percent else f"{mean:.3f}±{deviation:.3f}"


def _picture(quarters: dict[str, pd.DataFrame], active: pd.DataFrame) -> str:
    """What privacy costs by vocabulary, and the active vocabularies."""
    panels = {f"{told}, by {MEASURES[measure]}": [
        Bar(str(row["quarter"]), row[f"{of}_mean"], row[f"{of}_std"]) for row in table.to_dict("records")]
        for of, told in (("cost", "accuracy lost"), ("excessive_risk", "excess loss"))
        for measure, table in quarters.items()}
    panels["active vocabulary, words"] = [
        Bar(str(name), float(active[name].mean()), float(np.nan_to_num(active[name].std()))) for name in active]
    return picture("What participant-level privacy costs, by the participants' vocabulary", panels)


if __name__ == "__main__":
    typer.run(main)
