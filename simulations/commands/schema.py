"""`fedfair data schema`: write a schema to be edited, from what a file holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import pandas as pd
import tomli_w
import typer

from fedfair.datasets.columns import LEFT_OUT, understand
from fedfair.datasets.encoding import OTHER
from fedfair.datasets.schema import RECORDS
from fedfair.datasets.table import features_alone, whole_numbers
from fedfair.datasets.table_file import read_table
from fedfair.datasets.tidy import reading_of, tidied
from simulations.commands.options import Set, names_of
from simulations.settings.experiment import Experiment
from simulations.settings.settings_text import pairs

_HEAD = f"""\
# A schema: what everybody may know of a table's columns, so that preparing them costs no privacy.
# Its first version was read off the records, and would give some of them away: put the published range of every
# number and the published list of every category in its place. Then name where they are published as the source.
# While the source is "{RECORDS}", runs with this schema have a guarantee that is only nominal.
# A number beyond its range counts as its end, a category that is not listed as "{OTHER}".

"""


def schema(file: Annotated[Path, typer.Argument(help="Your own file.")],
           label: Annotated[str, typer.Option(help="Column to predict.")],
           group: Annotated[str, typer.Option(help="Column that names each record's group.")],
           out: Annotated[Path | None, typer.Option(help="File to write; by default the schema is printed.")] = None,
           without: Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")] = "",
           set_: Set = []) -> None:  # noqa: B006
    """Write ranges and categories of your own file as a schema to be edited; it looks at the records to do so.

    Example: fedfair data schema people.csv --label hired --group sex --out people.schema.toml
    """
    task = Experiment(csv=str(file), label=label, group=group, **pairs(set_)).task
    table, roles = read_table(file, task.asked), (label, *task.attributes)
    read = table.frame.drop(columns=features_alone(names_of(without), table.frame, roles))
    text = schema_text(tidied(read, reading_of(read, task.asked, table.separator)), label, str(task.attributes[0]))
    if out is None:
        print(text, end="")
        return
    with out.open("x", encoding="utf-8") as new:
        new.write(text)
    print(f"{out}: ranges and categories as they occur in {file}, which was looked at: put the published ones in their "
          f"place, name their source, and run with schema_file={out}")


def schema_text(frame: pd.DataFrame, label: str, group: str) -> str:
    """Return the schema of a tidied table, with ranges that end in round numbers.

    Args:
        frame: Tidied table.
        label: Column to predict.
        group: Column of the groups, whose names are public anyway.
    """
    kinds = {column.name: column.kind for column in understand(frame, label, group)}
    ranges = {name: list(_round_range(frame[name])) for name, kind in kinds.items() if kind == "number"}
    categories = {name: [*sorted(map(str, whole_numbers(frame[name].dropna()).unique())), OTHER]
                  for name, kind in kinds.items() if kind in ("boolean", "category")}
    unused = [name for name, kind in kinds.items() if kind in LEFT_OUT]
    note = f"# Columns with nothing to learn from: leave them out with without = {unused}\n\n" if unused else ""
    return _HEAD + note + tomli_w.dumps({"source": RECORDS, "ranges": ranges, "categories": categories})


def _round_range(column: pd.Series) -> tuple[float, float]:
    """Return a range around the numbers of a column, with ends of two digits."""
    low, high = float(column.min()), float(column.max())
    unit = 10.0 ** (math.floor(math.log10(max(high - low, abs(high), 1e-300))) - 1)
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit
