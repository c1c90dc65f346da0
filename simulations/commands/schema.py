"""`fedfair data schema`: write a schema to be edited, from what a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.commands.options import Set, names_of
from simulations.settings.settings_text import pairs


def schema(file: Annotated[Path, typer.Argument(help="Your own file.")],
           label: Annotated[str, typer.Option(help="Column to predict.")],
           group: Annotated[str, typer.Option(help="Column that names each record's group.")],
           out: Annotated[Path | None, typer.Option(help="File to write; by default the schema is printed.")] = None,
           without: Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")] = "",
           set_: Set = []) -> None:  # noqa: B006
    """Write ranges and categories of your own file as a schema to be edited; it looks at the records to do so.

    Example: fedfair data schema people.csv --label hired --group sex --out people.schema.toml
    """
    from fedfair.datasets.table import features_alone
    from fedfair.datasets.table_file import read_table
    from fedfair.datasets.tidy import reading_of, tidied
    from simulations.results.schema_text import schema_text
    from simulations.settings.experiment import Experiment

    task = Experiment(csv=str(file), label=label, group=group, **pairs(set_)).task
    table, roles = read_table(file, task.asked), (label, *task.attributes)
    read = table.frame.drop(columns=features_alone(names_of(without), table.frame, roles))
    text = schema_text(tidied(read, reading_of(read, task.asked, table.separator)), label,
                       [str(name) for name in task.attributes])
    if out is None:
        print(text, end="")
        return
    with out.open("x", encoding="utf-8") as new:
        new.write(text)
    print(f"{out}: ranges and categories as they occur in {file}, which was looked at: put the published ones in their "
          f"place, name their source, and run with schema_file={out}")
