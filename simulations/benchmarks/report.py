"""What a benchmark reports: a table of figures, whether targets are met, and all of it as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console
from rich.table import Table

from simulations.files.atomic_files import write_json, write_text

_LOAD = os.getloadavg()[0]  # before this process adds its own

Figures = Mapping[str, str | float | None]
"""One row of a table by column; None where there is nothing to compare with."""

Out = Annotated[Path | None, typer.Option(help="JSON file to write the figures to.")]


class Target(NamedTuple):
    """A figure and the bound that it should keep."""

    what: str
    figure: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure keeps the bound."""
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound

    def __str__(self) -> str:
        wanted = f"{'at least' if self.at_least else 'at most'} {self.bound:g}"
        return f"{self.what}: {self.figure:.2f}, wanted {wanted}: {'met' if self.met else 'MISSED'}"


def report(title: str, rows: Sequence[Figures], targets: Sequence[Target], out: Path | None) -> None:
    """Print the figures as a table and whether the targets are met, and write all of it to `out`."""
    table = Table(title=title, title_justify="left")
    for column, value in rows[0].items():
        table.add_column(column, justify="left" if isinstance(value, str) else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(value if isinstance(value, str) else "-" if value is None else f"{value:.2f}"
                        for value in row.values()))
    console = Console()
    console.print(table)
    if _LOAD > 0.5:
        console.print(f"[yellow]The machine was busy at the start, load {_LOAD:.1f}.[/yellow] Threads that wait for "
                      "each other then take most of the time: measure on a quiet one.", soft_wrap=True)
    for target in targets:
        console.print(str(target), highlight=False, soft_wrap=True)
    if out is not None:
        judged = [{**target._asdict(), "met": target.met} for target in targets]
        write_json(out, {"title": title, "environment": environment(), "figures": rows, "targets": judged})


def save_picture(drawing: str, out: Path | None) -> None:
    """Write an SVG beside the JSON file `out`, if there is one."""
    if out is not None:
        write_text(out.with_suffix(".svg"), drawing)


def environment() -> dict[str, Any]:
    """Describe what the figures depend on: package versions (null if absent), threads, load before; no names."""
    packages = {name: _version(name) for name in ("torch", "opacus", "flwr")}
    return {"packages": packages, "threads": torch.get_num_threads(), "load_before": _LOAD}


def _version(package: str) -> str | None:
    """Return a package's version, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
