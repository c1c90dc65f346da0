"""`fedfair fit`, `choose`, `predict` and `export`: a model to ship, and its use.

`fedfair fit`: a model to ship and a page to show, under one epsilon.

`fedfair choose`: take another classifier of a run's front, at no cost in privacy.

`fedfair predict`: apply a trained model to the rows of a file.

`fedfair export`: a fit's model for programs without fedfair.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer
from rich.console import Console

from fedfair.datasets.columns.cell import spreadsheet_cell
from fedfair.datasets.names import visible
from simulations.commands.options import Attribute, Delta, Encoding, Json, Set, Sql, Without, names_of, source_of
from simulations.commands.terminal import READING, say, showing_progress, telling_if_stopped
from simulations.files.atomic_files import refuse_as_file, write_text

if TYPE_CHECKING:
    from simulations.fitting.fit_folder import Story


_FITTING = "fitting: reads, learns features, trains, measures, writes the page"

GapAmong = Annotated[str, typer.Option(help="Groups among which gaps are, separated by commas, such as F,M, whatever "
                                       "can be told of others; name them without looking at the records.")]


def fit(
    file: Annotated[str, typer.Argument(click_type=click.Path(), help="Table: CSV, Parquet, Feather, .xlsx, JSON, or "
                                        "of SPSS, Stata or SAS; or a folder, or a pattern such as 'parts/*.csv', of "
                                        "files with the same columns; with --sql a database.")],
    label: Annotated[str, typer.Option(help="Column with the classes to predict.")],
    group: Annotated[str, typer.Option(help="Column with the sensitive attribute; several, separated by commas, for "
                                       "their intersections.")],
    sql: Sql = None,
    site: Annotated[str | None, typer.Option(help="Column with the site of each record, such as a hospital: figures by "
                                             "site too, and by group within each. It is no feature.")] = None,
    epsilon: Annotated[float, typer.Option(min=1e-3, max=1e3, help="Epsilon that every record is kept within, by all "
                                           "that is released.")] = 1.0,
    delta: Delta = None,
    gap: Annotated[float | None, typer.Option(min=0, max=1, help="Largest gap between groups that is allowed, on "
                                              "left-out or validation records; by default that of the most "
                                              "accurate.")] = None,
    constraint: Annotated[Literal["demographic_parity", "equal_opportunity", "both"], typer.Option(
        help="Of what the gap is.")] = "demographic_parity",
    gap_among: GapAmong = "",
    monotone: Annotated[list[str], typer.Option(help="COLUMN=up or COLUMN=down: a number that the favourable class "
                                                "must get more or less probable with, at no cost in privacy; repeat it "
                                                "for others.")] = [],  # noqa: B006 - Typer copies it
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
    seed: Annotated[int | None, typer.Option(min=0, help="{seed} By default a fit draws one.")] = None,
    set_: Set = [],  # noqa: B006 - Typer copies it
    owner: Annotated[str, typer.Option(help="Who answers for the model, for the page and the card.")] = "",
    purpose: Annotated[str, typer.Option(help="What the model is for, for the page and the card.")] = "",
    beside: Annotated[Path | None, typer.Option(help="Figures of another model, to be shown beside: the folder of an "
                                                "earlier fit, or a CSV file with group, metric and value, as of a "
                                                "model without privacy; no epsilon covers them.")] = None,
    count_in: Annotated[Path | None, typer.Option(help="File that counts this fit with others of the same records, and "
                                                  "says what they cost together.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write: model, page, card and a program.")] = None,
    json: Json = False,
) -> None:
    """Fit a model to a table under one epsilon, which pays for preprocessing, training, choice and every figure.

    All of the folder can be published. Example: fedfair fit people.csv --label hired --group sex --epsilon 1 --out
    out/people
    """
    from simulations.fitting.beside import read_beside
    from simulations.fitting.budget import Spending
    from simulations.fitting.fit import Wanted
    from simulations.fitting.fit import fit as fit_model
    from simulations.fitting.save import kept_free, save, told
    from simulations.settings.names import pairs

    if label in names_of(group):
        raise ValueError(f"label and group are both {label!r}: a model's gap is between groups of people, so name "
                         "another column as group")
    given = {"favourable": favourable, "schema_file": None if schema is None else str(schema), "encoding": encoding,
             "attribute_in_model": attribute_in_model, "without": names_of(without) or None, "seed": seed,
             "gap_among": names_of(gap_among) or None}
    also = pairs(set_)
    twice = next((name for name, value in also.items() if given.get(name) not in (None, False, value)), None)
    if twice is not None:
        raise ValueError(f"{twice} is {given[twice]!r} by its option and {also[twice]!r} by --set: say it once")
    settings: dict[str, Any] = {**{name: value for name, value in given.items() if value is not None}, **also}
    if out is not None and count_in is not None and count_in.resolve().is_relative_to(out.resolve()):
        raise ValueError(f"{count_in} is in {out}, which a fit writes as a whole: count in a file beside it")
    given_beside = {} if beside is None else read_beside(beside)
    counted = "" if count_in is None else f"; {count_in} counts the fit once it had begun to release something"
    with nullcontext() if out is None else kept_free(out), \
            telling_if_stopped(lambda: f"nothing is kept, and nothing of the records was written{counted}"), \
            showing_progress(_FITTING):
        fitted = fit_model(Wanted(source_of(file, sql), label, group, epsilon, delta, gap, constraint, settings,
                                  tuple(names_of(methods)), _number(trials), site, count_in, tuple(monotone),
                                  owner, purpose, given_beside))
        story = told(fitted) if out is None else save(fitted, out)
    show(story, json)
    if count_in is not None:
        say(Spending(count_in).told())
    if out is not None:
        apart = f", but for the figures of {given_beside['name']}, which no epsilon covers" if given_beside else ""
        say(f"saved in {out}, all of which can be published{apart}: the page is {out / 'report.html'}"
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
    from simulations.fitting.card import card_in_json, story_table

    if json:
        print(card_in_json(story), end="")
        return
    Console(highlight=False).print(story_table(story))


Limit = Annotated[float | None, typer.Option(min=0, max=1, help="Largest gap between groups that is allowed.")]


def choose(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run of moments, or of a comparison.")],
    run: Annotated[str | None, typer.Option(help="Run of a comparison, for example moments/seed-0.")] = None,
    demographic_parity: Limit = None,
    equal_opportunity: Limit = None,
    equalised_odds: Limit = None,
    accuracy_parity: Limit = None,
    worst_group: Annotated[bool, typer.Option("--worst-group", help="Look for the best accuracy of the worst group, "
                                              "not of all records.")] = False,
    tau: Annotated[float | None, typer.Option(help="Share that is left of differences between groups' scores.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Probability above which the favourable of two classes is "
                                                    "decided for, the same for all groups.")] = None,
    gap_among: GapAmong = "",
    json: Json = False,
) -> None:
    """Choose another point of a run's front, the most accurate within limits: it replaces the model of the folder.

    All points follow from one release, so this costs no privacy of training records. It goes by figures on
    left-out records, or on the validation part. Example: fedfair choose out/people --demographic-parity 0.05
    """
    from simulations.drawing.table import Table, terminal  # here, because pandas takes time
    from simulations.files.atomic_files import in_json
    from simulations.fitting.fit_folder import Story
    from simulations.fitting.save import chosen_again, is_fit
    from simulations.results.choice import Gap, Wish
    from simulations.results.choice import choose as choose_point

    limits: dict[Gap, float | None] = {
        "demographic_parity": demographic_parity, "equal_opportunity": equal_opportunity,
        "equalised_odds": equalised_odds, "accuracy_parity": accuracy_parity}
    wish = Wish({name: limit for name, limit in limits.items() if limit is not None}, worst_group, tau, threshold,
                tuple(names_of(gap_among)))
    if is_fit(folder):
        Story.read(folder)  # before the model is replaced: its page is made of these files
        choose_point(folder, wish, run, lambda new, point: chosen_again(new, folder.resolve().name, point.number,
                                                                        wish.among))
        show(Story.read(folder), json)
        return
    chosen = choose_point(folder, wish, run)
    if json:
        print(in_json({"run": chosen.run, **chosen.point._asdict(), "figures": chosen.figures.to_dict()}))
        return
    rows = [(str(metric).replace("_", " "), *(f"{value:,.3f}" for value in row))
            for metric, row in chosen.figures.dropna(how="all").iterrows()]
    columns = [str(column) for column in chosen.figures]
    table = Table("", f"{chosen.run or folder}: {chosen.point.name}", ("all records", *columns), rows,
                  figures=range(1, 1 + len(columns)))
    Console(highlight=False).print(terminal(table))
    print(f"the model in {folder} is this one now")


def predict(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run on a table, or of a comparison.")],
    file: Annotated[str, typer.Argument(click_type=click.Path(), help="Table with the columns that the run was "
                                        "trained on: CSV, Parquet, Feather, .xlsx, JSON, or of SPSS, Stata or SAS; "
                                        "or a folder or a pattern of files; with --sql a database.")],
    sql: Sql = None,
    run: Annotated[str | None, typer.Option(help="Run of a comparison, for example dpsgd-f/seed-0.")] = None,
    group: Annotated[str, typer.Option(help="Columns that name each row's group, separated by commas, for a "
                                       "model with a threshold; by default the run's.")] = "",
    encoding: Encoding = None,
    unreadable: Annotated[Literal["refuse", "missing"], typer.Option(
        help="What a cell is that must be a number and is none: refused, or missing, where the model knows missing "
             "values; how many is said.")] = "refuse",
    cut_off: Annotated[float | None, typer.Option(help="Probability from which on the favourable class of a fit is "
                                                  "decided for, in place of 0.5; the page says what some do to each "
                                                  "group.")] = None,
    stability: Annotated[bool, typer.Option("--stability", help="Add how probable it is that the decision would be the "
                                            "same, had the training's noise been drawn anew.")] = False,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; by default the rows are printed.")] = None,
) -> None:
    """Add the predicted class and the probability of each class to every row of a file.

    Each cell is read as it was for the training, or refused by row and column; what counts as another category than it
    is written is said. Example: fedfair predict out/people new.csv --out predicted.csv
    """
    from fedfair.datasets.files.in_memory import removed_after, written  # here, with pandas
    from fedfair.datasets.files.query import Query
    from simulations.fitting.predicting import decided_from, draws_of, rows_of, with_stability
    from simulations.results.classifier import TrainedClassifier, with_predictions  # here: it needs scikit-learn

    if out is not None:
        refuse_as_file(out, Path(file))
    classifier = TrainedClassifier.load(folder, run).set_params(unreadable=unreadable)
    if not classifier.columns:
        raise ValueError(f"the model in {folder} was trained on records that are not rows of a table: give their "
                         "arrays to simulations.results.classifier.TrainedClassifier")
    draws = draws_of(folder, run, classifier) if stability else None
    with showing_progress(READING), removed_after():
        source = source_of(file, sql)
        path = written(source) if isinstance(source, Query) else source
        rows = with_predictions(classifier, rows_of(path, encoding, folder, classifier), names_of(group))
        if cut_off is not None:
            rows = decided_from(rows, cut_off, folder, classifier, stability)
        if draws is not None:
            rows = with_stability(classifier, rows, draws)
    text = rows.assign(predicted=rows["predicted"].map(spreadsheet_cell)).to_csv(index=False)
    if out is None:
        print(visible(text, keep="\n") if sys.stdout.isatty() else text, end="")
    else:
        write_text(out, text)
        print(f"saved in {out}")


def export(
    folder: Annotated[Path, typer.Argument(help="Folder that `fedfair fit` wrote.")],
    onnx: Annotated[Path | None, typer.Option(help="ONNX file to write; needs fedfair[onnx].")] = None,
    python: Annotated[Path | None, typer.Option(help="Python program to write, which needs no package.")] = None,
) -> None:
    """Write a fit's model as ONNX or as a plain Python program, at no cost in privacy.

    Example: fedfair export out/people --onnx people.onnx
    """
    from simulations.files.atomic_files import refuse_as_file, write_bytes, write_text
    from simulations.fitting.fit_folder import Story
    from simulations.fitting.onnx_model import onnx_model
    from simulations.fitting.standalone_program import program

    if onnx is None and python is None:
        raise ValueError("nothing to export: give --onnx FILE or --python FILE")
    if onnx is not None and python is not None and onnx.resolve() == python.resolve():
        raise ValueError(f"{onnx} is named for both forms, of which one would be lost: name another file")
    story = Story.read(folder)
    for file in filter(None, (onnx, python)):
        refuse_as_file(file)
    if onnx is not None:
        write_bytes(onnx, onnx_model(story))
        say(f"saved in {onnx}")
    if python is not None:
        write_text(python, program(story))
        say(f"saved in {python}")
