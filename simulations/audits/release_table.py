"""The tables of audits of releases, and of the preparation."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedfair.datasets.names import visible
from simulations.audits.outlier import OutlierAudit
from simulations.audits.releases import ReleaseAudit

_SHOWN = 10
_OF_RELEASES = ("too small: deviation of a tensor's noise, in units of what is charged. correlated: of two releases. "
                "repeated: numbers that come twice, with either sign. All limits hold together with probability {}.")


def release_table(audits: Sequence[ReleaseAudit]) -> Table:
    """Lay out what each seed's noise gave away: a row for each suspicion, or one that says that there is none."""
    first = audits[0]
    table = Table(title=Text(f"{first.experiment.strategy}, noise of {first.releases:,} releases, {first.numbers:,} "
                             f"numbers: guarantee {first.guarantee}"), title_justify="left", title_style="bold",
                  caption=_OF_RELEASES.format(f"{first.confidence:.3g}"), caption_justify="left")
    for name in ("seed", "finding", "value", "limit", "where"):
        table.add_column(name, justify="right" if name in ("seed", "value", "limit") else "left")
    for each in audits:
        seed = str(each.experiment.seed)
        for found in each.suspicions[:_SHOWN]:
            table.add_row(seed, f"[red]{found.test}[/red]", f"{found.value:.4g}", f"{found.limit:.4g}",
                          Text(visible(found.where)))
        if not each.suspicions:
            table.add_row(seed, "nothing found", "", "", "")
        elif len(each.suspicions) > _SHOWN:
            table.add_row(seed, f"and {len(each.suspicions) - _SHOWN} more", "", "", "")
    return table


def outlier_table(audits: Sequence[OutlierAudit]) -> Table:
    """Lay out what an extreme value in each column of one record moved: a row for each column that moved others."""
    first = audits[0]
    verdict = f"nominal: {first.learned}" if first.learned else "nothing was learned from records"
    table = Table(title=Text(f"one extreme row, preparation of {visible(first.experiment.dataset)}"),
                  title_justify="left", title_style="bold", caption=Text(f"what the ledger says: {visible(verdict)}"),
                  caption_justify="left")
    for name in ("seed", "column", "other records moved", "new features", "largest change"):
        table.add_column(name, justify="left" if name == "column" else "right")
    for each in audits:
        seed, colour = str(each.experiment.seed), "red" if each.refuted else "yellow"
        for moved in each.moved:
            table.add_row(seed, Text(visible(moved.column), style=colour), f"{moved.records:,}", str(moved.features),
                          f"{moved.largest:.3g}")
        if not each.moved:
            table.add_row(seed, f"none of {len(each.columns)}", "0", "0", "0")
    return table
