"""`fedfair data`: list, fetch and describe data sets, check a file, write its schema.

`fedfair data`: list, fetch and describe data sets, and check a file.

`fedfair data schema`: write a schema to be edited, from what a file holds.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.console import Console
from rich.text import Text

from fedfair.datasets import DATASETS
from fedfair.datasets.files.query import Query
from fedfair.datasets.names import as_text, visible
from simulations.commands.options import Encoding, Group, Label, Set, Sql, names_of, source_of
from simulations.commands.terminal import READING, showing_progress
from simulations.settings.names import pairs

if TYPE_CHECKING:
    from fedfair.protocol.task import Task

Name = Annotated[str, typer.Argument(help="Name of a data set, see fedfair data list, or hf:NAME.")]


def list_data() -> None:
    """List the data sets by name, with their variants.

    Example: fedfair data list
    """
    for name in DATASETS:
        print(name, *(f"(balance = {variant})" for variant in DATASETS[name].variants))


def fetch(name: Name, label: Label = None, group: Group = None) -> None:
    """Download a data set into the cache, or verify the cached copy; hf:NAME needs label and group.

    Example: fedfair data fetch adult
    """
    from simulations.settings.experiment import Experiment

    parts = Experiment(dataset=name, label=label, group=group).task.data()
    print(f"{name}: {sum(len(part) for _, part in parts):,} records, verified")


def describe(name: Name, label: Label = None, group: Group = None) -> None:
    """Print records, features and groups of a data set; hf:NAME needs label and group.

    Example: fedfair data describe digits
    """
    from simulations.settings.experiment import Experiment

    _describe(name, Experiment(dataset=name, label=label, group=group).task)


def check(file: Annotated[str, typer.Argument(click_type=click.Path(), help="Your own file: CSV, Parquet, Feather, "
                                              ".xlsx, JSON, or of SPSS, Stata or SAS; or a folder or a pattern of "
                                              "files; with --sql a database.")],
          label: Annotated[str, typer.Option(help="Column to predict.")],
          group: Annotated[str, typer.Option(help="Columns that name each record's group, separated by commas.")],
          missing: Annotated[str, typer.Option(help="Rows with missing values: refuse or drop them.")] = "refuse",
          without: Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")] = "",
          encoding: Encoding = None, sql: Sql = None, set_: Set = []) -> None:  # noqa: B006
    """Print how your own file is read, ask about what is doubtful, and say whether the file can be used, and how.

    Example: fedfair data check people.csv --label hired --group sex
    """
    from fedfair.datasets.columns.kinds import problems
    from fedfair.datasets.files.part_files import table_name
    from fedfair.datasets.table import MissingValues
    from fedfair.moments.sums import CLASSES
    from simulations.drawing.table import terminal
    from simulations.fitting.columns import ROW_NUMBERS, refuse_added
    from simulations.results.terminal_table import columns_table
    from simulations.settings.experiment import Experiment
    from simulations.settings.own_file import examine, label_rates, small_groups

    given = {"encoding": encoding, "without": tuple(names_of(without)) or None}
    source = source_of(file, sql)
    shown, named = (source.shown, source.name) if isinstance(source, Query) else (file, table_name(source))
    made = Experiment(**{"csv": source if isinstance(source, Query) else file, "label": label, "group": group,
                         "missing": missing, **{name: value for name, value in given.items() if value},
                         **pairs(set_)})
    task = made.task
    with showing_progress(READING):
        found = examine(task)
    console = Console()
    console.print(terminal(columns_table(shown, found.columns)))
    described = found.described if sql is None else found.described.replace("Read as parquet", "Read as a query", 1)
    for sentence in (described, *found.questions):
        console.print(Text(visible(sentence)))
    if wrong := problems(found.columns):
        raise ValueError(wrong)
    refuse_added(made, [column.name for column in found.columns], [*map(str, found.classes)])
    is_open = label not in task.attributes and "favourable" not in pairs(set_)
    if is_open and len(found.classes) > CLASSES:
        print(visible(f"Favourable class of a fit: none of the {len(found.classes)} of {label}, so that it tells no "
                      "rates of decisions; add --favourable NAME to name one."))
    if is_open and len(found.classes) == CLASSES:
        other, good = found.classes
        print(visible(f"Favourable class of a fit: {good!r} of {label}, whose decisions its rates count. If it is no "
                      f"favour to a person, as a readmission is none, add --favourable {shlex.quote(other)}."))
    options = {"--label": label, "--group": group, "--encoding": encoding or "", "--without": without}
    words = [word for option in options.items() if option[1] for word in option]
    words += [word for pair in set_ for word in ("--set", pair)]
    try:
        with showing_progress(READING):
            task.data()  # which is kept for what follows
        _describe(shown, task)
    except MissingValues as error:
        console.print(Text(visible(f"The table has {error.gaps}. A fit keeps them, each as a value of its own; other "
                                   "runs need them filled, or leave those rows out with --missing drop.")))
    else:
        console.print(terminal(label_rates(task.data())))
        for sentence in small_groups(task.data()):
            console.print(Text(visible(f"Warning: {sentence}"), style="bold"))
        dropped = [] if missing == "refuse" else ["--missing", missing]
        if sql is None:
            compared = shlex.join(["--csv", file, *words, *dropped])
            print(visible(f"To compare methods: fedfair compare {compared} --out out/{named}"))
    if label in task.attributes:
        return  # a fit is of groups that are not the classes
    # A fit looks at no value to leave a column out, and would have numbers of rows as a feature.
    numbers = [column.name for column in found.columns if column.kind == "row number" and column.name != ROW_NUMBERS]
    options["--without"] = as_text([*names_of(without), *numbers]) if numbers else without
    words = [word for option in options.items() if option[1] for word in option]
    said = [pair for pair in set_ if not found.quantities or not pair.startswith("quantities=")]
    words += [word for pair in (*said, *filter(None, [found.quantities])) for word in ("--set", pair)]
    words += [] if sql is None else ["--sql", sql]
    print(visible(f"Next: fedfair fit {shlex.join([shown, *words])} --out out/{named}"))


def _describe(name: str, task: Task) -> None:
    """Print what a task's data holds."""
    from fedfair.datasets.columns.kinds import numbered

    parts = task.data()
    print(visible(f"{name}: {sum(len(part) for _, part in parts):,} records, {tuple(parts.train.x.shape[1:])} features,"
                  f" {parts.train.classes} classes ({numbered(parts.train.labels)})"))
    for split, part in parts:
        sizes = ", ".join(f"{n} {s:,}" for n, s in zip(part.names, part.group_sizes(), strict=True))
        print(visible(f"  {split}: {sizes}"))


def schema(file: Annotated[Path, typer.Argument(help="Your own file.")],
           label: Annotated[str, typer.Option(help="Column to predict.")],
           group: Annotated[str, typer.Option(help="Column that names each record's group.")],
           out: Annotated[Path | None, typer.Option(help="File to write; by default the schema is printed.")] = None,
           without: Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")] = "",
           set_: Set = []) -> None:  # noqa: B006
    """Write ranges and categories of your own file as a schema to be edited; it looks at the records to do so.

    Example: fedfair data schema people.csv --label hired --group sex --out people.schema.toml
    """
    from fedfair.datasets.columns.convention import as_read
    from fedfair.datasets.columns.tidy import listed, reading_of, tidied
    from fedfair.datasets.files.chunks import read_files
    from fedfair.datasets.table import features_alone
    from simulations.settings.experiment import Experiment
    from simulations.settings.own_file import schema_text

    task = Experiment(csv=str(file), label=label, group=group, **pairs(set_)).task
    with showing_progress(READING):
        table, roles = read_files(file, task.asked), (label, *task.attributes)
        asked = replace(task.asked, categorical=(*task.asked.categorical, *listed(table.frame)))
        read = table.frame.drop(columns=features_alone(names_of(without), table.frame, roles))
        reading = reading_of(read, asked, table.separator, (*roles, task.site))
        text = schema_text(tidied(read, reading), label, [str(name) for name in task.attributes],
                           as_read(asked, reading))
    if out is None:
        print(text, end="")
        return
    with out.open("x", encoding="utf-8") as new:
        new.write(text)
    print(f"{out}: ranges and categories as they occur in {file}, which was looked at: put the published ones in their "
          f"place, name their source, and run with schema_file={out}")
