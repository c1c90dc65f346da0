"""The report as one HTML file that needs nothing else, and what is no Python of this page and of a fit's: templates.

Flower sends no HTML, CSS or JavaScript with an app. So a run that `flwr run` sent takes those of the fedfair that is
installed where it runs, if that is the same one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import COLOURS, Figure
from simulations.drawing.svg import drawn, swatch
from simulations.drawing.table import Table, plain, said
from simulations.report.contents import Report
from simulations.report.head import command
from simulations.results.run_folder import Source
from simulations.statistics.measures import BEST, DOUBTFUL

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Shown:
    """A folder's configuration, as the page shows it."""

    source: Source

    @property
    def name(self) -> str:
        """Name of the folder, without its path."""
        return self.source.folder.resolve().name

    @property
    def command(self) -> str:
        """See `simulations.report.head.command`."""
        return command(self.source)


class Swatch(NamedTuple):
    """An entry of a legend."""

    name: str
    picture: Markup


def page(report: Report) -> str:
    """Return the whole file."""
    environment = templates("simulations.report")
    environment.filters.update(said=said, plain=plain, panels=_panels, legend=_legend, numeric=Table.numeric,
                               estimated=_estimated, marking=_marking)
    return environment.get_template("page.html.j2").render(
        report=report, folders=[Shown(source) for source in report.sources], colours=COLOURS,
        version=version("fedfair"), style=as_it_is(environment, "page.css"),
        script=as_it_is(environment, "page.js"))


def _panels(figure: Figure, chapter: str) -> list[tuple[str, Markup]]:
    """Draw the panels of a figure, with their titles."""
    return [(panel.title, Markup(drawing))  # noqa: S704 - every text in it is escaped
            for panel, drawing in zip(figure.panels, drawn(figure, chapter), strict=True)]


def _legend(figure: Figure) -> list[Swatch]:
    """Draw the legend of a figure."""
    return [Swatch(name, Markup(swatch(place))) for name, place in figure.legend().items()]  # noqa: S704


def _marking(mark: str) -> str:
    """Return the class of a marked cell, to follow another one."""
    return {BEST: " best", DOUBTFUL: " doubtful"}.get(mark, "")


def _estimated(table: Table) -> list[bool]:
    """Say of each column whether it holds means with intervals."""
    return [any(isinstance(row[number], Estimate) for row in table.rows) for number in range(len(table.columns))]


def page_folder(package: str) -> Path:
    """Return the folder with the files of a package's page.

    Args:
        package: Name of the package, for example simulations.fitting.

    Raises:
        FileNotFoundError: If they are neither beside this program nor where the same program is installed.
    """
    place = Path(*package.split("."))
    for root in (_ROOT, *map(Path, sys.path)):
        if (root / place / "page").is_dir() and _source(root / place) == _source(_ROOT / place):
            return root / place / "page"
    raise FileNotFoundError(f"the page of {package} is not on this machine: Flower sends no HTML with an app, so "
                            "install the same version of fedfair here as in the app")


@cache
def templates(package: str) -> Environment:
    """Return a package's page and its parts: every text is escaped, and shows the control characters of names."""
    return Environment(loader=FileSystemLoader(page_folder(package)), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True, finalize=_visible)


def as_it_is(environment: Environment, name: str) -> Markup:
    """Return a file of a package, to put into the page unescaped."""
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])  # noqa: S704 - our own style and script


def _visible(value: object) -> object:
    """Show control characters in names from the data; lines of a configuration stay lines."""
    return visible(value, keep="\n\t") if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(folder: Path) -> dict[str, bytes]:
    """Return the Python files of a package by name."""
    return {path.name: path.read_bytes() for path in folder.glob("*.py")}
