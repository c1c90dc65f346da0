"""The table of audits of releases."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedfair.datasets.names import visible
from simulations.audits.releases import ReleaseAudit

_SHOWN = 10
_CAPTION = ("too small: deviation of a tensor's noise, in units of what is charged. correlated: of two releases. "
            "repeated: numbers that come twice, with either sign. All limits hold together with probability {}.")


def release_table(audits: Sequence[ReleaseAudit]) -> Table:
    """Lay out what each seed's noise gave away: a row for each suspicion, or one that says that there is none."""
    first = audits[0]
    table = Table(title=Text(f"{first.experiment.strategy}, noise of {first.releases:,} releases, {first.numbers:,} "
                             f"numbers: guarantee {first.guarantee}"), title_justify="left", title_style="bold",
                  caption=_CAPTION.format(f"{first.confidence:.3g}"), caption_justify="left")
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
