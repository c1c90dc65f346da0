"""What decides: the weight of each column in the decisions of a fit, and by how much it tells groups apart.

Both follow from the scorecard and from noisy sums that were released, at no cost. The score of a record is the sum of
its columns' scores, so

    weight of a column = the standard deviation of its score over the training records, as a share of the sum of all
    difference         = the mean of its score over one group, less that over another

and the differences of all columns add up to that of the groups' mean scores. A column that the model does not call
sensitive, and that moves the scores of groups apart, stands in for the group: a proxy.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedfair.datasets.names import names_in
from fedfair.fairness.intervals import Estimate, quantile
from fedfair.fairness.noisy_figures import CONFIDENCE
from simulations.fitting.fit_folder import Story
from simulations.results.scorecard import EVERY, RECORDS


class Deciding(NamedTuple):
    """A column that decides.

    Attributes:
        column: Its name.
        share: Its weight, as a share of that of all columns.
        first: The group whose scores it raises most above those of another; "" where that is not known.
        second: That other group.
        difference: By how much, in units of the score for the favourable class, with an interval for noise and
            sampling error, which holds together with those of all other columns.
    """

    column: str
    share: float
    first: str = ""
    second: str = ""
    difference: Estimate = Estimate(math.nan)


def deciding(story: Story) -> list[Deciding]:
    """Return the columns of a fit's model by their weight, the largest first; none where it decides alike for all.

    Args:
        story: The fit.
    """
    card = story.scorecard[story.scorecard["column"] != EVERY].reset_index(drop=True)
    if RECORDS not in card or story.decides_alike is not None:
        return []
    scores = _for_the_favourable(card, story)
    records = pd.to_numeric(card[RECORDS]).to_numpy("float64")
    places = {column: np.asarray(rows) for column, rows in card.groupby("column", sort=False).indices.items()}
    weights = {str(column): _spread(scores[rows], records[rows]) for column, rows in places.items()}
    total = sum(weights.values())
    if not total > 0:
        return []
    deciders = {column: weight for column, weight in weights.items() if weight > 0}
    found = [Deciding(column, weight / total, *_between(scores, places[column], weight, len(deciders), story))
             for column, weight in deciders.items()]
    return sorted(found, key=lambda each: -each.share)


def _for_the_favourable(card: pd.DataFrame, story: Story) -> np.ndarray:
    """Return each row's score for the favourable class less the mean of the other classes' scores, `[rows]`."""
    names = [f"score of {label}" for label in story.description.labels]
    own = f"score of {story.favourable}"
    scores: np.ndarray = card[own].to_numpy("float64") - card[[name for name in names if name != own]].mean(
        axis=1).to_numpy("float64")
    return scores


def _spread(scores: np.ndarray, records: np.ndarray) -> float:
    """Return the standard deviation of scores over about as many records of each; 0 of none."""
    if not records.sum() > 0:
        return 0.0
    mean = np.average(scores, weights=records)
    return float(np.sqrt(np.average((scores - mean) ** 2, weights=records)))


def _between(scores: np.ndarray, rows: np.ndarray, spread: float, columns: int, story: Story
             ) -> tuple[str, str, Estimate]:
    """Return the two groups that a column's scores tell apart most, of those with figures, and by how much.

    The intervals of all columns hold together, since a page names each column that is told to tell groups apart.
    """
    refits, bounding = story.refits, story.description.encoding.bounding
    if refits is None or refits.means is None or refits.off is None or bounding is None:
        return "", "", Estimate(math.nan)
    unit = bounding.last / bounding.constant  # of a feature that a record has
    if len(refits.means) != len(story.groups):  # groups that are the classes have no means by themselves
        return "", "", Estimate(math.nan)
    means = refits.means.numpy()[:, rows] / unit @ scores[rows]
    noise = refits.off.numpy() / unit * float(np.sqrt((scores[rows] ** 2).sum()))
    sizes = np.array([max(story.figure("records", group).value, 1.0) for group in story.groups])
    off = np.hypot(noise, spread / np.sqrt(sizes))  # and sampling error, about as if all groups spread alike
    told = [place for place, group in enumerate(story.groups)
            if (group in story.among if story.among else story.figure("accuracy", group).told)]
    pairs = [(high, low) if means[high] >= means[low] else (low, high) for high, low in combinations(told, 2)]
    if not pairs:
        return "", "", Estimate(math.nan)
    high, low = max(pairs, key=lambda pair: means[pair[0]] - means[pair[1]])
    reach = quantile(CONFIDENCE, len(pairs) * columns) * math.hypot(off[high], off[low])
    value = float(means[high] - means[low])
    return story.groups[high], story.groups[low], Estimate(value, value - reach, value + reach)


def proxies(found: list[Deciding], story: Story) -> list[Deciding]:
    """Return the columns that are told to move groups apart, the widest first, without those that name the groups.

    Args:
        found: What decides.
        story: The fit.
    """
    group = story.config["group"]
    named = {*(names_in(group) if isinstance(group, str) else group)}
    told = [each for each in found if each.column not in named and each.difference.low > 0]
    return sorted(told, key=lambda each: -each.difference.value)


def in_words(found: list[Deciding], story: Story) -> str:
    """Return what decides in a sentence or two; "" if that is not known.

    Args:
        found: What decides.
        story: The fit.
    """
    if not found:
        return ""
    most = [f"{each.column} ({each.share:.0%})" for each in found[:_NAMED]]
    said = " ".join(filter(None, (f"Of the weight in decisions, {_listed(most)} "
                                  f"{'have' if len(most) > 1 else 'has'} most.", leaks(found, story))))
    if not found[0].first:
        return said
    told = [f"{each.column} ({each.first} above {each.second} by {each.difference.value:.2f})"
            for each in proxies(found, story)[:_NAMED]]
    group = f"{story.config['group']} is {'a' if story.config['attribute_in_model'] else 'no'} feature"
    if not told:
        return f"{said} {group}, and no other column is told to give one group a higher mean score than another."
    return f"{said} {group}; these columns give one group a higher mean score than another: {_listed(told)}."


def leaks(found: list[Deciding], story: Story) -> str:
    """Return a sentence about a column that decides nearly alone, and nearly always rightly; "" if there is none.

    Such a column often is the label in other words, or known after it.

    Args:
        found: What decides.
        story: The fit.
    """
    accuracy = story.figure("accuracy")
    if not found or not accuracy.told or found[0].share < _ALONE or accuracy.value < _RIGHT:
        return ""
    name, label = found[0].column, story.config["label"]
    return (f"{name} decides nearly alone, and the model is right for {accuracy.text}: look whether {name} is known "
            f"before {label} is, or is {label} in other words; if so, leave it out by --without {name}.")


_ALONE = 0.8  # of the weight in decisions
_RIGHT = 0.95  # of the records
_NAMED = 3  # columns in a sentence


def _listed(names: list[str]) -> str:
    """Return names as a sentence has them."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
