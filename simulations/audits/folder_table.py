"""The table of audits of the result folder."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedfair.datasets.names import visible
from simulations.audits.folder import FolderAudit

_SHOWN = 10
_OF_FOLDERS = ("fixed: the same in all runs with the target, and another in all runs without it. exact: equal to a "
               "figure of the training records that were used. One of these refutes a proved guarantee.")


def folder_table(audits: Sequence[FolderAudit]) -> Table:
    """Lay out what in the folders tells two data sets apart: a row for each entry, or one that says there is none."""
    first = audits[0]
    table = Table(title=Text(f"{first.experiment.strategy} on {visible(first.experiment.dataset)}, folders of "
                             f"{first.runs} runs with one training record and {first.runs} without: guarantee "
                             f"{first.guarantee}"), title_justify="left", title_style="bold",
                  caption=f"{first.entries:,} entries were read. {_OF_FOLDERS}", caption_justify="left", min_width=78)
    for name in ("seed", "target", "kind", "entry", "detail"):
        table.add_column(name, justify="right" if name in ("seed", "target") else "left")
    for each in audits:
        seed, row, colour = str(each.experiment.seed), f"row {each.target}", "red" if each.refuted else "yellow"
        for leak in each.leaks[:_SHOWN]:
            table.add_row(seed, row, f"[{colour}]{leak.kind}[/{colour}]", Text(visible(leak.entry)),
                          Text(visible(leak.detail)))
        if not each.leaks:
            table.add_row(seed, row, "nothing found", "", "")
        elif len(each.leaks) > _SHOWN:
            table.add_row(seed, row, f"and {len(each.leaks) - _SHOWN} more", "", "")
    return table
