"""Reports: one self-contained HTML file from the folders of runs, comparisons and sweeps; figures and tables for
papers.

`simulations.results.run_folder` reads the folders. `figures` and `tables` say what is shown, as data; `contents`
puts it in chapters, below what `head` says first, and `page` writes the file. `simulations.drawing` draws figures and
writes tables, for the page and for papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulations.drawing.paper import save_figure
from simulations.drawing.table import latex
from simulations.engines.run import Progress
from simulations.files.atomic_files import write_text
from simulations.report import contents
from simulations.report.page import page
from simulations.results.run_folder import read

__all__ = ["write_report"]


def write_report(folders: Sequence[Path], out: Path | None = None, figures: Path | None = None,
                 progress: Progress = lambda *_: None) -> list[Path]:
    """Write one self-contained HTML report of runs, comparisons and sweeps.

    Args:
        folders: Folders of finished results, at least one, each once.
        out: HTML file to write; by default report.html in the first folder.
        figures: Folder for every figure as PNG and SVG and every table as LaTeX; by default none are written.
        progress: Called with the numbers of finished and of all chapters.

    Returns:
        The files that were written, the HTML file first.

    Raises:
        FileNotFoundError: If a folder holds no result.
        ValueError: If a result is not finished, a folder is named twice, or `figures` is given without matplotlib.

    Examples:
        >>> from simulations import Experiment, run
        >>> folder = run(Experiment(strategy="dpsgd", steps=2, hidden=(4,), accountant="rdp")).save("my-run")
        >>> write_report([folder])
        [PosixPath('my-run/report.html')]
    """
    report = contents.report(*read(folders), progress)
    file = folders[0] / "report.html" if out is None else out
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, page(report))
    return [file, *(save_for_papers(report, figures) if figures is not None else ())]


def save_for_papers(report: contents.Report, folder: Path) -> list[Path]:
    """Write figures as PNG and SVG, and tables as LaTeX, in a folder for each chapter if there are several."""
    files = []
    for chapter in report.chapters:
        target = folder / chapter.name if len(report.chapters) > 1 else folder
        target.mkdir(parents=True, exist_ok=True)
        for figure in chapter.figures():
            files += save_figure(figure, target)
        for table in chapter.tables():
            files.append(target / f"{table.name}.tex")
            write_text(files[-1], latex(table))
    return files
