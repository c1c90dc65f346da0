"""The choice of another classifier of a front: by figures that the folder holds, and at no cost in privacy.

The classifiers follow from the same releases. What the choice reveals of validation records, or of left-out ones, is
what their figures reveal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd
import tomli_w
from torch import Tensor

from fedfair.accounting.events import LEFT_OUT
from fedfair.fairness.intervals import UNKNOWN, Estimate, gaps, places_of, quantile, records, widened
from fedfair.fairness.metrics import ALL
from fedfair.fairness.noisy_figures import CONFIDENCE
from fedfair.moments.front import Point
from fedfair.protocol.messages import BY_CLIENT
from simulations.files.saved_files import save_tensors, saved_table, saved_weights, to_csv
from simulations.results.classifier import TrainedClassifier
from simulations.results.front_files import (
    CURVES,
    CUT_OFFS,
    FIGURES,
    FRONT,
    FRONT_COLUMNS,
    SITES,
    read_front,
    read_refits,
    settings_of,
)
from simulations.results.result_folder import carry_over, replaced
from simulations.results.run_folder import RunFolder
from simulations.results.scorecard import RECORDS, SCORECARD, scorecard
from simulations.statistics.summary import summarise
from strategies.server.releases.front import CHOSEN_ON

CHOICE = "choice.toml"

Gap = Literal["demographic_parity", "equal_opportunity", "equalised_odds", "accuracy_parity"]
"""A gap between groups that can be limited."""

_SPLITS = ("test", *CHOSEN_ON)


class Wish(NamedTuple):
    """What is asked of a classifier.

    Attributes:
        limits: The largest gap that is allowed, by its name.
        worst_group: Whether to look for the best accuracy of the worst group, in place of all records.
        tau: The share that is left of differences between groups' mean scores; None for any.
        threshold: The probability above which the favourable class is decided for; None for any.
        among: Names of the groups among which gaps are from now on; none for those that they are among.
    """

    limits: Mapping[Gap, float]
    worst_group: bool = False
    tau: float | None = None
    threshold: float | None = None
    among: tuple[str, ...] = ()


class Chosen(NamedTuple):
    """A classifier that was chosen.

    Attributes:
        run: Name of its run, "" for the only one.
        number: Its position in the front.
        point: Its settings.
        figures: Figures of all records by part: a row for each metric.
    """

    run: str
    number: int
    point: Point
    figures: pd.DataFrame


def choose(folder: Path, wish: Wish, run: str | None = None,
           complete: Callable[[Path, Chosen], object] = lambda *_: None) -> Chosen:
    """Put the classifier of the front that fits best into the folder, in place of the run's model.

    The figures of the folder become those of its decisions; figures of probabilities are left out.

    Args:
        folder: Folder of a finished run or comparison.
        wish: What is asked of it, on the validation part.
        run: Run of a comparison; None if only one has a front.
        complete: Given the new folder before it takes the place of the other, makes what else there is of the model,
            so that a page and a model are never of two classifiers.

    Raises:
        BlockingIOError: If another process replaces the folder now.
        FileNotFoundError: If the folder holds no front.
        ValueError: If no classifier is within the limits, there is no validation part, or no such group.
    """
    name, figures, weights = read_front(folder, run)
    figures = with_gaps_among(figures, wish.among) if wish.among else figures
    number = best(figures, wish)
    chosen = Chosen(name, number, settings_of(figures, number), _overall(figures, number))
    with replaced(folder) as new:
        _write(folder, new, chosen, figures[figures["point"] == number], weights[number],
               figures if wish.among else None)
        complete(new, chosen)
    return chosen


def best(figures: pd.DataFrame, wish: Wish) -> int:
    """Return the number of the most accurate classifier within the limits, by figures on the validation part.

    Raises:
        ValueError: If none is within the limits, or there are no figures of a validation part.
    """
    valid = figures[figures["split"].isin(CHOSEN_ON)]
    if valid.empty:
        raise ValueError("the run had no validation part, on which a classifier is chosen: give it a share in split")
    valid = _with_setting(_with_setting(valid, "tau", wish.tau), "threshold", wish.threshold)
    wide = valid[valid["group"] == ALL].pivot(index="point", columns="metric", values="value")
    wide = wide.reindex(columns=wide.columns.union([*wish.limits]))  # of what is unknown there are no figures
    within = wide
    for gap, limit in wish.limits.items():
        within = within[within[gap] <= limit]
        if within.empty:
            raise ValueError(f"no classifier of the front has a {gap} of at most {limit:g} on {_on(valid)}, "
                             f"with what else was asked: {_least(wide[gap])}")
    accuracy = valid[(valid["metric"] == "accuracy") & (valid["group"] != ALL)]
    score = accuracy.groupby("point")["value"].min() if wish.worst_group else wide["accuracy"]
    return int(str(score.loc[within.index].idxmax()))


def _on(figures: pd.DataFrame) -> str:
    """Say what records figures are of."""
    return "left-out records" if (figures["split"] == LEFT_OUT).all() else "the validation part"


def _least(gaps: pd.Series) -> str:
    """Say what the least of some gaps is."""
    if gaps.notna().any():
        return f"the least is {gaps.min():.4g}"
    return ("it cannot be told of any, as where a group has hardly a record; name the groups that count by "
            "--gap-among; or where none of three classes or more is favourable; name one by --favourable to a fit")


def _with_setting(figures: pd.DataFrame, name: Literal["tau", "threshold"], wanted: float | None) -> pd.DataFrame:
    """Return the figures of the classifiers with a setting, or of all; raise `ValueError` if there is none."""
    if wanted is None:
        return figures
    found = figures[figures[name] == wanted]
    if found.empty:
        known = sorted(figures[name].unique().tolist(), reverse=True)
        raise ValueError(f"no classifier of the front has the {name} {wanted:g}: take one of "
                         f"{', '.join(f'{value:g}' for value in known)}")
    return found


def _overall(figures: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return the figures of all records of one classifier: a row for each metric, a column for each part."""
    own = figures[(figures["point"] == number) & (figures["group"] == ALL)]
    return own.pivot(index="metric", columns="split", values="value")


def _write(folder: Path, new: Path, chosen: Chosen, own: pd.DataFrame, weights: Tensor, front: pd.DataFrame | None
           ) -> None:
    """Write a folder with the chosen model and its figures, and with other ones of its front if given."""
    saved = RunFolder(folder)
    metrics = _with_figures(saved.metrics, chosen.run, own)
    metrics.to_parquet(new / "metrics.parquet", index=False)
    (new / "summary.csv").write_text(to_csv(summarise(metrics, saved.ledgers_of(metrics))), encoding="utf-8")
    _replace_model(folder / "model.safetensors", new / "model.safetensors", chosen.run, weights)
    _replace_figures(folder, new, chosen.run, own)
    _replace_scorecard(folder, new, chosen)
    told = {"run": chosen.run, **chosen.point._asdict(),
            "figures": {split: chosen.figures[split].dropna().to_dict() for split in chosen.figures}}
    if front is not None:
        whole = saved_table(folder / FRONT, FRONT_COLUMNS)
        pd.concat([whole[whole["run"] != chosen.run], front]).to_parquet(new / FRONT, index=False)
    (new / CHOICE).write_text(tomli_w.dumps(told), encoding="utf-8")
    carry_over(folder, new)


def _with_figures(metrics: pd.DataFrame, run: str, own: pd.DataFrame) -> pd.DataFrame:
    """Return a table of metrics with the figures of a chosen classifier in the last round of its run."""
    of_run = metrics["strategy"] + "/seed-" + metrics["seed"].astype(str) == run if run else pd.Series(
        True, index=metrics.index)
    held_out = metrics["split"].isin(_SPLITS) & of_run
    last = held_out & (metrics["round"] == metrics.loc[held_out, "round"].max())
    values = own.set_index(["split", "group", "metric"])["value"]
    keys = pd.MultiIndex.from_frame(metrics.loc[last, ["split", "group", "metric"]])
    made = metrics.copy()
    made.loc[last, "value"] = values.reindex(keys).to_numpy()
    return made[~(of_run & made["split"].str.endswith(BY_CLIENT))]


def _replace_figures(folder: Path, new: Path, run: str, own: pd.DataFrame) -> None:
    """Replace the private figures of a run, if it has some; what was not measured of a classifier is left out."""
    for name in (FIGURES, CURVES, SITES, CUT_OFFS):
        if (folder / name).is_file():
            table = saved_table(folder / name, ("run",), keep_default_na=False, na_values=[""])
            mine = [own.assign(run=run)[[*table.columns]]] if name == FIGURES else []
            others = table[table["run"].fillna("") != run]
            (new / name).write_text(to_csv(pd.concat([others, *mine])), encoding="utf-8")


def _replace_scorecard(folder: Path, new: Path, chosen: Chosen) -> None:
    """Replace the scorecard of a run, if it has one, by that of its new model."""
    if not (folder / SCORECARD).is_file():
        return
    run, refits = chosen.run, read_refits(folder, chosen.run)
    cards = saved_table(folder / SCORECARD, ("run",), keep_default_na=False, dtype={"run": str, RECORDS: str})
    model = TrainedClassifier.load(new, run or None)
    card = scorecard(model.model, model.encoding, model.labels,
                     deviations=refits.deviations[chosen.number] if refits else None)
    if RECORDS in cards:
        card[RECORDS] = cards.loc[cards["run"] == run, RECORDS].to_numpy()
    made = pd.concat([cards[cards["run"] != run], card.assign(run=run)[[*cards.columns]]])
    (new / SCORECARD).write_text(to_csv(made), encoding="utf-8")


def _replace_model(old: Path, new: Path, run: str, weights: Tensor) -> None:
    """Write a file of models anew, with other weights of one run's linear model."""
    with saved_weights(old) as saved:
        tensors = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118 - no mapping
        described = saved.metadata()
    own = [name for name in tensors if name.startswith(f"{run}/") or not run]
    tensors[own[0]] = weights.T.to(tensors[own[0]]).contiguous()
    save_tensors(tensors, new, described)


def with_gaps_among(figures: pd.DataFrame, named: Sequence[str]) -> pd.DataFrame:
    """Return figures whose gaps are those among some groups.

    The intervals of rates hold with 95 %. Where several must hold together, they are as much wider as intervals of a
    normal distribution would be.

    Args:
        figures: Columns point, split, group, metric, value, low and high; the ends of intervals may be unknown.
        named: Names of two groups or more.

    Raises:
        ValueError: If there is no such group, or fewer than two are named.
    """
    groups = [str(name) for name in figures["group"].unique() if name != ALL]
    chosen = places_of(named, groups)
    if len({*named}) < max(2, len(named)):
        raise ValueError(f"gap_among is {', '.join(named) or 'empty'}: name two groups or more, each once")
    made = [_with_gaps(rows, groups, chosen) for _, rows in figures.groupby(["point", "split"], sort=False)]
    whole = pd.concat(made, ignore_index=True)
    return whole.assign(low=math.nan, high=math.nan) if figures["low"].isna().all() else whole


def _with_gaps(rows: pd.DataFrame, groups: Sequence[str], chosen: Sequence[int]) -> pd.DataFrame:
    """Return the figures of one classifier on one part with other gaps; those that are unknown are left out."""
    own = {(str(row["group"]), row["metric"]): Estimate(row["value"], row["low"], row["high"]) for row in records(rows)}
    rates = [partial(_rate, own, group) for group in groups]
    found = dict(gaps(rates, {metric for _, metric in own}, CONFIDENCE, chosen))
    kept = rows[~((rows["group"] == ALL) & rows["metric"].isin(found))]
    told = [kept.iloc[0].to_dict() | {"group": ALL, "metric": name} | gap._asdict()
            for name, gap in found.items() if not math.isnan(gap.value)]
    return pd.concat([kept, pd.DataFrame(told, columns=rows.columns)]) if told else kept


def _rate(own: Mapping[tuple[str, str], Estimate], group: str, metric: str, z: float) -> Estimate:
    """Return a figure of a group with an interval of so many deviations."""
    return widened(own.get((group, metric), UNKNOWN), z / quantile(CONFIDENCE)).within(0, 1)
