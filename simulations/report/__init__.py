"""Reports: one self-contained HTML file from the folders of runs, comparisons and sweeps; figures and tables for
papers.

`folders` reads, `figures`, `tradeoffs`, `ledgers` and `tables` say what is shown, as data; `svg` and `page` draw it for
the browser, `paper` and `latex` for papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulations.engines.run import Progress
from simulations.report import contents
from simulations.report.folders import read
from simulations.report.latex import latex
from simulations.report.page import page
from simulations.report.paper import save_figure
from simulations.results.atomic_files import write_text

__all__ = ["write_report"]


def write_report(folders: Sequence[Path], out: Path | None = None, figures: Path | None = None,
                 progress: Progress = lambda *_: None) -> list[Path]:
    """Write the report of some folders; returns the files.

    `out` is the HTML file, by default report.html in the first folder. `figures` is a folder for every figure as PNG
    and SVG and every table as LaTeX. `progress` is called with chapters done and to do. Raises `FileNotFoundError` or
    `ValueError` for a folder without a finished result, and `ValueError` for figures without matplotlib.
    """
    report = contents.report(*read(folders), progress)
    file = folders[0] / "report.html" if out is None else out
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, page(report))
    return [file, *(save_for_papers(report, figures) if figures is not None else ())]


def save_for_papers(report: contents.Report, folder: Path) -> list[Path]:
    """Figures as PNG and SVG, tables as LaTeX; in a folder for each chapter if there are several."""
    files = []
    for chapter in report.chapters:
        place = folder / chapter.name if len(report.chapters) > 1 else folder
        place.mkdir(parents=True, exist_ok=True)
        for figure in chapter.figures():
            files += save_figure(figure, place)
        for table in chapter.tables():
            files.append(place / f"{table.name}.tex")
            write_text(files[-1], latex(table))
    return files
