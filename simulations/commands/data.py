"""`fedfair data`: list, fetch and describe data sets, and check a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedfair.datasets import DATASETS
from fedfair.datasets.columns import numbered, understand
from fedfair.datasets.csv_file import read_csv
from fedfair.datasets.names import visible
from fedfair.datasets.table import features_alone
from fedfair.datasets.tidy import tidied
from fedfair.protocol.task import Task
from simulations.commands.options import Group, Label, names_of
from simulations.results.table import columns_table
from simulations.settings.experiment import Experiment

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
    parts = Experiment(dataset=name, label=label, group=group).task.data()
    print(f"{name}: {sum(len(part) for _, part in parts):,} records, verified")


def describe(name: Name, label: Label = None, group: Group = None) -> None:
    """Print records, features and groups of a data set; hf:NAME needs label and group.

    Example: fedfair data describe digits
    """
    _describe(name, Experiment(dataset=name, label=label, group=group).task)


def check(file: Annotated[Path, typer.Argument(help="Your own CSV file.")],
          label: Annotated[str, typer.Option(help="Column to predict.")],
          group: Annotated[str, typer.Option(help="Column that names each record's group.")],
          missing: Annotated[str, typer.Option(help="Rows with missing values: refuse or drop them.")] = "refuse",
          without: Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")] = "") -> None:
    """Print the columns of your own file, how each is read, and whether the file can be used.

    Example: fedfair data check people.csv --label hired --group sex
    """
    frame, unused = tidied(read_csv(file)), names_of(without)
    read = frame.drop(columns=features_alone(unused, frame, (label, group)))
    Console().print(columns_table(str(file), understand(read, label, group)))
    _describe(str(file), Experiment(csv=str(file), label=label, group=group, missing=missing,
                                    without=tuple(unused) or None).task)


def _describe(name: str, task: Task) -> None:
    """Print what a task's data holds."""
    parts = task.data()
    print(visible(f"{name}: {sum(len(part) for _, part in parts):,} records, {tuple(parts.train.x.shape[1:])} features,"
                  f" {parts.train.classes} classes ({numbered(parts.train.labels)})"))
    for split, part in parts:
        sizes = ", ".join(f"{n} {s:,}" for n, s in zip(part.names, part.group_sizes(), strict=True))
        print(visible(f"  {split}: {sizes}"))
