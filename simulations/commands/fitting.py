"""`fedfair fit`: a model to ship and a page to show, under one epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from simulations.commands.options import Attribute, Delta, Encoding, Json, Seed, Set, Without, names_of
from simulations.commands.terminal import say

if TYPE_CHECKING:
    from simulations.fitting.story import Story


def fit(
    file: Annotated[Path, typer.Argument(help="Table: CSV, Parquet, Feather, .xlsx or JSON; or a folder, "
                                         "or a pattern such as 'parts/*.csv', of files with the same columns.")],
    label: Annotated[str, typer.Option(help="Column with the classes to predict.")],
    group: Annotated[str, typer.Option(help="Column with the sensitive attribute; several, separated by commas, for "
                                       "their intersections.")],
    site: Annotated[str | None, typer.Option(help="Column with the site of each record, such as a hospital: figures by "
                                             "site too, and by group within each. It is no feature.")] = None,
    epsilon: Annotated[float, typer.Option(min=1e-3, max=1e3, help="Epsilon that every record is kept within, by all "
                                           "that is released.")] = 1.0,
    delta: Delta = None,
    gap: Annotated[float | None, typer.Option(min=0, max=1, help="Largest gap between groups that is allowed, on "
                                              "validation records; by default that of the most accurate.")] = None,
    constraint: Annotated[Literal["demographic_parity", "equal_opportunity", "both"], typer.Option(
        help="Of what the gap is.")] = "demographic_parity",
    methods: Annotated[str, typer.Option(help="Methods to select among, separated by commas: moments, dpsgd, "
                                         "dpsgd-global-adapt. With others than moments alone, a random number of "
                                         "trainings is tried, and epsilon pays for the choice.")] = "moments",
    trials: Annotated[str | None, typer.Option(help="Expected number of trials of several methods: a number above 1, "
                                               "or auto (10). How many there were stays secret.")] = None,
    favourable: Annotated[str | None, typer.Option(help="{favourable}")] = None,
    schema: Annotated[Path | None, typer.Option(help="TOML file with public ranges and categories of columns, as "
                                                "`fedfair data schema` writes it; what it does not name is learned "
                                                "privately.")] = None,
    attribute_in_model: Attribute = None,
    without: Without = "",
    encoding: Encoding = None,
    seed: Seed = 0,
    set_: Set = [],  # noqa: B006 - Typer copies it
    out: Annotated[Path | None, typer.Option(help="Folder to write: model, page, card and a program.")] = None,
    json: Json = False,
) -> None:
    """Fit a model to a table under one epsilon, which pays for preprocessing, training, choice and every figure.

    All of the folder can be published. Example: fedfair fit people.csv --label hired --group sex --epsilon 1 --out
    out/people
    """
    from simulations.fitting.fit import Wanted
    from simulations.fitting.fit import fit as fit_model
    from simulations.fitting.folder import refuse_folder, save, told
    from simulations.settings.settings_text import pairs

    given = {"favourable": favourable, "schema_file": None if schema is None else str(schema), "encoding": encoding,
             "attribute_in_model": attribute_in_model, "without": names_of(without) or None, "seed": seed}
    settings: dict[str, Any] = {**{name: value for name, value in given.items() if value is not None}, **pairs(set_)}
    if out is not None:
        refuse_folder(out)
    fitted = fit_model(Wanted(file, label, group, epsilon, delta, gap, constraint, settings, tuple(names_of(methods)),
                              _number(trials), site))
    story = told(fitted) if out is None else save(fitted, out)
    show(story, json)
    if out is not None:
        say(f"saved in {out}, all of which can be published: the page is {out / 'report.html'}"
            if story.ledger.guarantee == "proved" else
            f"saved in {out}; the guarantee is {story.ledger.guarantee}, so do not publish it: {story.ledger.reason}")


def _number(trials: str | None) -> float | None:
    """Return the expected number of trials, or None for that of the program; raise `ValueError` for what is neither."""
    if trials in (None, "auto"):
        return None
    try:
        return float(str(trials))
    except ValueError:
        raise ValueError(f"trials is {trials!r}: give the expected number, for example 10, or auto") from None


def show(story: Story, json: bool) -> None:
    """Print what a fit tells: figures by group, gaps between them, and what must be known of them."""
    from simulations.fitting.card import card_in_json
    from simulations.fitting.story_table import story_table

    if json:
        print(card_in_json(story), end="")
        return
    Console(highlight=False).print(story_table(story))
