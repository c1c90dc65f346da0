"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple

from markupsafe import Markup

from fedfair.fairness.intervals import Estimate
from simulations.drawing.figure import Figure
from simulations.drawing.panels import drawn, swatch
from simulations.drawing.svg import COLOURS
from simulations.drawing.table import Table, plain, said
from simulations.report.contents import Report
from simulations.report.head import command
from simulations.report.page_files import as_it_is, templates
from simulations.results.run_folder import Source
from simulations.statistics.marks import BEST, DOUBTFUL


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
        """See `again.command`."""
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
