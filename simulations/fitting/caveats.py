"""What a reader must know before believing a fit's figures, as terminal, page and card say it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fedfair.accounting.figures import up
from fedfair.datasets.columns.quantities import UNITS
from fedfair.datasets.columns.relations import identifiers
from fedfair.datasets.columns.texts import written_twice
from fedfair.datasets.names import as_text
from simulations.fitting.fit_folder import Story
from simulations.results.scorecard import EVERY

_SAME = 1e-9  # scores that differ by less differ by rounding
_SHOWN_BY = "`fedfair data check` shows them."


def caveats(story: Story) -> list[str]:
    """Return what a reader must know before believing the figures: of accuracy, columns, records, choice, guarantee.

    Args:
        story: The fit's folder.
    """
    lines = [*_of_accuracy(story), *_of_columns(story), *_of_records(story), *_of_choice(story)]
    if story.ledger.guarantee != "proved":
        lines.append(f"The guarantee is {story.ledger.guarantee}: {story.ledger.reason}.")
    return lines


def unlearned(story: Story) -> list[str]:
    """Return the columns that decide nothing: all of their scores are the same.

    Args:
        story: The fit's folder.
    """
    scores = story.scorecard.filter(like="score of ").groupby(story.scorecard["column"], sort=False)
    apart = (scores.max() - scores.min()).max(axis=1)
    return [str(column) for column in apart.index[apart < _SAME] if column != EVERY]


def _of_accuracy(story: Story) -> list[str]:
    """Say whether the model is better than no model, and of which groups nothing can be told."""
    lines = []
    majority, accuracy = story.figure("majority_rate"), story.figure("accuracy")
    if accuracy.told and majority.told and accuracy.low <= majority.high:
        meant = "worse than" if accuracy.high < majority.low else "not told apart from"
        lines.append(f"Always deciding for the most frequent class is right for {majority.text}: the model is "
                     f"{meant} that.")
    for group in story.groups:
        if not story.figure("accuracy", group).told:
            between = (f": what is between groups is that between {story.between}." if story.among else
                       ": what is between groups is between the others, if there are two.")
            lines.append(f"Of the group {group} too little can be told at this epsilon{between}")
    return lines


def _of_columns(story: Story) -> list[str]:
    """Say which columns decide nothing, or were perhaps read as something else than they are."""
    lines, nothing = [], unlearned(story)
    if nothing and story.decides_alike is None:
        lines.append(f"Nothing was learned of {', '.join(nothing)}: no two values or bins are told to be "
                     "those of enough records, as of names, dates and codes. Make a number of a date, a few "
                     "classes of codes, or leave it out by --without.")
    for column in identifiers({feature.column: None for feature in story.description.encoding.features}):
        lines.append(f"{column}, which has the name of an identifier, is a feature. If several rows belong to one "
                     f"person, epsilon is that of each row, not of each person: take "
                     f"{shlex.join(['--set', f'participant={column}'])}, which keeps all rows of one in one part, or "
                     f"{shlex.join(['--without', as_text([column])])}.")
    for column, names in _written_twice(story).items():
        lines.append(f"{' and '.join(names)} of {column} are one number written in different ways, and count as "
                     "different categories: write it in one way in all files, or take "
                     f'--set \'numbers=["{column}"]\', by which it is a number.')
    lines += _of_kinds(story.asked)
    if story.config.get("quantities"):
        named = (f"{column} in {UNITS[quantity]}" for column, quantity in story.config["quantities"])
        lines.append(f"Read as numbers: {', '.join(named)}.")
    return lines


def _written_twice(story: Story) -> dict[str, tuple[str, ...]]:
    """Return the first categories of each column that are one number, of those that private counts listed."""
    names: dict[str, list[str]] = {}
    for feature in story.description.encoding.features:
        names.setdefault(feature.column, []).extend(filter(None, [feature.category]))
    twice = {column: written_twice(categories) for column, categories in names.items()}
    asked = {*story.config.get("categorical", ())}
    return {column: sets[0] for column, sets in twice.items() if sets and column not in asked}


def _of_kinds(asked: Mapping[str, Any]) -> list[str]:
    """Say what the noisy counts of cells tell of quantities that are not plain numbers."""
    columns = {name: ", ".join(asked.get(name, ())) for name in ("measures", "strays", "unread", "shares", "texts")}
    return [line for name, line in {
        "measures": f"Most values of {columns['measures']} look like quantities that are written with a bound, a unit "
                    "or two numbers, and are read as text, each a category: write plain numbers in one unit, or say "
                    f"that they are categories by --set categorical. {_SHOWN_BY}",
        "strays": f"Some values of {columns['strays']} are quantities with a bound or a unit, no plain numbers, and "
                  f"count as missing: write plain numbers in one unit. {_SHOWN_BY}",
        "unread": f"Some values of {columns['unread']} are texts that are no numbers as its others are written, and "
                  f"count as missing; the scorecard says of about how many records. {_SHOWN_BY}",
        "shares": f"Some values of {columns['shares']} have a sign of per cent, and others none; those that are fewer "
                  "count as missing: write all in one way.",
        "texts": f"The noisy counts do not tell that {columns['texts']} holds numbers, which --monotone takes it for: "
                 "values that are none count as missing."}.items() if columns[name]]


def _of_records(story: Story) -> list[str]:
    """Say how many records could not be read, whether more are needed, and whether they were charged for twice."""
    lines, asked = [], story.asked
    if "unreadable_rows" in asked:
        lines.append(f"About {asked['unreadable_rows']:,} rows of the table could not be read, and count "
                     "nowhere: `fedfair data check` names their lines.")
    if "needed_records" in asked:
        lines.append(f"The table is small for this epsilon, and noise costs accuracy: about "
                     f"{asked['needed_records']:,} training records, or an epsilon of "
                     f"{asked['needed_epsilon']:.2g}, would be enough.")
    if story.epsilon > asked["epsilon"] * (1 + 1e-6):
        lines.append(f"Figures were interrupted, and released again. Both are charged, so that epsilon is "
                     f"{up(story.epsilon, '.4g')}, not the {asked['epsilon']:g} that was asked for.")
    return lines


def _of_choice(story: Story) -> list[str]:
    """Say whether the model decides alike for everybody, or has a larger gap than was asked for."""
    lines, asked = [], story.asked
    if story.decides_alike is not None:
        others = (f": no other model of the front was within the gap of {asked['gap']:g} on {story.chosen_on}, "
                  f"and the least was {asked['least_gap']:.3f}" if "least_gap" in asked else "")
        lines.append(f"The model decides {story.decides_alike} for everybody{others}.")
    if asked.get("missed"):
        lines.append(f"No model of the front was within the gap of {asked['gap']:g} on {story.chosen_on}: "
                     "this is the nearest.")
    return lines
