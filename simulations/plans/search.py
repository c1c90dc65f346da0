"""A random search over settings, and its cost in privacy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedfair.fairness.group_counts import GroupCounts, Scores, favourable_of
from fedfair.fairness.metrics import metrics
from fedfair.fairness.sklearn_metrics import further
from fedfair.mechanisms.randomness import generator
from fedfair.plugins.registry import unknown
from simulations.settings.experiment import Experiment, SettingsError


class Range(BaseModel):
    """Values that a setting is drawn from: `values` with equal chances, or between `low` and `high`, on a logarithmic
    scale if `log`; whole numbers if both ends are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    values: tuple[Any, ...] = ()
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False

    @model_validator(mode="after")
    def _complete(self) -> Range:
        """Require either values, or both ends."""
        if bool(self.values) == (self.low is not None and self.high is not None):
            raise ValueError("a searched setting has either values, or low and high: for example "
                             "{ values = [2, 4] } or { low = 0.01, high = 1.0, log = true }")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low is {self.low}, above high, {self.high}")
        if self.log and (self.low is None or self.low <= 0):
            raise ValueError(f"low is {self.low}: on a logarithmic scale it must be above 0")
        return self

    def draw(self, draws: torch.Generator) -> Any:
        """Draw one value."""
        share = float(torch.rand((), generator=draws, dtype=torch.float64))
        if self.low is None or self.high is None:
            return self.values[int(share * len(self.values))]
        low, high = self.low, self.high
        if isinstance(low, int) and isinstance(high, int):
            return min(int(_between(low, high + 1, share, self.log)), high)
        return _between(low, high, share, self.log)


class Search(BaseModel):
    """Random search: draws settings from `space` for `trials` runs, and finds the best by a metric of the validation
    part, by default one that no constant model wins.

    A `scheduler` stops bad trials early, after at least `grace` percent of their rounds: "asha" (asynchronous
    successive halving, Li et al. 2020), "median" (below the median of the others), or "none". `seed` is the search's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    space: Annotated[dict[str, Range], Field(min_length=1)]
    trials: Annotated[int, Field(ge=1, le=100_000)] = 10
    metric: str = "balanced_accuracy"
    group: str = "all"
    mode: Literal["max", "min"] = "max"
    scheduler: Literal["none", "asha", "median"] = "none"
    grace: Annotated[int, Field(ge=1, le=100)] = 10
    seed: Annotated[int, Field(ge=0)] = 0

    def draws(self) -> Iterator[dict[str, Any]]:
        """Yield the settings of every trial: a pure function of the seed, so that a resumed search draws the same."""
        for number in range(self.trials):
            draws = generator(self.seed, "search", 0, number)
            yield {name: within.draw(draws) for name, within in self.space.items()}


def refuse_unmeasured(search: Search, experiment: Experiment) -> None:
    """Raise `SettingsError` or `ValueError` if a run does not measure the search's metric of its group on the
    validation part.

    The same holds if the metric is not a number there, whatever is predicted. Reads the data.
    """
    valid = experiment.task.data().valid
    ones, empty = torch.ones(len(valid)), GroupCounts.zeros(len(valid.names), valid.classes, bool(experiment.metrics))
    favourable = experiment.favourable_class(valid.labels)
    certain = Scores(torch.nn.functional.one_hot(valid.y, valid.classes).double(), favourable)
    perfect = GroupCounts.of(valid.y, valid.y, valid.group, ones, ones, empty, certain)
    asked = further(experiment.metrics, valid.classes, favourable_of(favourable, valid.classes))
    measured = list(metrics(perfect, valid.names, favourable, asked))
    of_group = {metric: value for group, metric, value in measured if group == search.group}
    if not of_group:
        raise unknown("group to search by", search.group, {group for group, _, _ in measured})
    if search.metric not in of_group:
        raise unknown(f"metric of {search.group} to search by", search.metric, of_group)
    if math.isnan(of_group[search.metric]):
        raise SettingsError(f"{search.metric} of {search.group} is not a number on the validation part: rates of "
                            "decisions need records, and with more than two classes a favourable one; take another "
                            f"metric, for example accuracy, or say which of 0..{valid.classes - 1} is favourable")


def refuse_other_stops(folder: Path, there: Search, search: Search) -> None:
    """Raise `FileExistsError` if this search would continue trials that another rule stopped.

    `there` is the search that stopped trials in `folder`.
    """
    changed = [name for name in ("metric", "group", "mode", "scheduler", "grace")
               if getattr(there, name) != getattr(search, name)]
    if changed:
        raise FileExistsError(f"{folder} holds trials that were stopped by another rule, which differs in "
                              f"{', '.join(changed)} of [search]: choose another folder, or restore the description "
                              "(its config.toml); only its number of trials may grow here")


class Spent(NamedTuple):
    """What one trial released."""

    epsilon: float
    delta: float
    stopped: bool


def cost(spent: Sequence[Spent]) -> dict[str, Any]:
    """Add up what all trials on the same training records cost, by basic composition (Dwork and Roth 2014, Theorem
    3.16).
    """
    stopped, epsilon = sum(trial.stopped for trial in spent), sum(trial.epsilon for trial in spent)
    kind = ("without bound: a trial had no noise, or what it released is unknown" if math.isinf(epsilon) else
            "what was spent: trials were stopped by their results" if stopped else
            "guaranteed in advance, by basic composition")
    return {
        "trials": len(spent), "stopped_early": stopped,
        "epsilon_of_the_search": epsilon,
        "delta_of_the_search": sum(trial.delta for trial in spent),
        "epsilon_of_the_search_is": kind,
        "means": "The settings were chosen by runs on the same training records, so publishing the best model, or "
                 "only its settings, costs the epsilon of the search; that of the best run alone is what this one run "
                 "spent. Both hold for noise drawn afresh in every trial, while this simulation draws it from the seed "
                 "that all trials share. The validation records, by which the best was chosen, are not protected.",
    }


def _between(low: float, high: float, share: float, log: bool) -> float:
    """Return the point at `share` of the way."""
    return low * (high / low) ** share if log else low + (high - low) * share
