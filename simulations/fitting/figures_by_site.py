"""What a fit's folder tells by site, where its records have sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedfair.fairness.intervals import UNKNOWN, Estimate, records
from fedfair.fairness.metrics import ALL, find, shown_in
from fedfair.fairness.site_figures import COMPARED, LESS_OTHERS, WITHIN_SITES
from simulations.files.saved_files import saved_table
from simulations.results.front_files import SITE_COLUMNS, SITES
from simulations.statistics.summary import MEASURED_ON

OF_SITES = {metric.name: metric.words for metric in shown_in("fit sites")}
"""Figures of every site, and of every group within it, and what they are called."""

LESS = {f"{name}{LESS_OTHERS}{within}": "the same within sites, on average" if within else
        f"{find(name).words} less that of the others, over all" for name in COMPARED for within in ("", WITHIN_SITES)}
"""By how much a group's rates are above those of the others, and what that is called."""

_OVER_ALL, _WITHIN = [*LESS][:2]


class _Compared(NamedTuple):
    """A group, and by how much it is selected more often than the others: over all, and within sites."""

    group: str
    over_all: Estimate
    within: Estimate


@dataclass(frozen=True)
class SiteStory:
    """Figures by site.

    Attributes:
        sites: Names of the sites; empty if nothing was measured by site.
        figures: Figures by site, group and metric.
    """

    sites: Sequence[str]
    figures: Mapping[tuple[str, str, str], Estimate]

    @staticmethod
    def read(folder: Path) -> SiteStory:
        """Read what a folder tells by site."""
        if not (folder / SITES).is_file():
            return SiteStory((), {})
        table = saved_table(folder / SITES, SITE_COLUMNS, keep_default_na=False, dtype={"site": str, "group": str},
                            na_values={name: [""] for name in ("value", "low", "high")})
        rows = records(table[table["split"].isin(MEASURED_ON)])
        figures = {(str(row["site"]), str(row["group"]), row["metric"]):
                   Estimate(row["value"], row["low"], row["high"]) for row in rows}
        return SiteStory([*dict.fromkeys(site for site, _, _ in figures if site != ALL)], figures)

    def at(self, site: str, metric: str, group: str = ALL) -> Estimate:
        """Return a figure of a group at a site."""
        return self.figures.get((site, group, metric), UNKNOWN)

    def less(self, metric: str, group: str) -> Estimate:
        """Return by how much a rate of a group is above that of the others."""
        return self.at(ALL, metric, group)

    @property
    def finding(self) -> str:
        """Whether a gap between groups is one between sites, in one sentence."""
        compared = [_Compared(group, shown, self.less(_WITHIN, group)) for (site, group, metric), shown
                    in self.figures.items() if site == ALL and metric == _OVER_ALL]
        told = [each for each in compared if each.over_all.told and each.within.told]
        if not told:
            return "Whether a difference between groups is one between sites cannot be told at this epsilon."
        most = max(told, key=lambda each: max(abs(each.over_all.value), abs(each.within.value)))
        return (f"The selection rate of {most.group} less that of the others is {_signed(most.over_all)} over all, and "
                f"{_signed(most.within)} within sites on average: {_meaning(most)}.")


def _signed(shown: Estimate) -> str:
    """Return a difference with its sign and its interval."""
    return f"{shown.value:+.3f} ({shown.low:+.3f} to {shown.high:+.3f})"


def _meaning(compared: _Compared) -> str:
    """Say what the two differences mean."""
    over_all, within = compared.over_all, compared.within
    if not _differs(over_all):
        return ("sites hide a difference that shows within them" if _differs(within)
                else "neither over all nor within sites is a difference told from none")
    if not _differs(within):
        return "the difference is one between sites, as far as can be told, and within them none is told from none"
    if (over_all.value > 0) != (within.value > 0):
        return "within sites the difference has the other direction (Simpson's paradox)"
    if over_all.low <= within.high and within.low <= over_all.high:
        return "sites do not explain the difference"
    if abs(within.value) < abs(over_all.value):
        return "a part of the difference is one between sites"
    return "sites hide a part of the difference"


def _differs(shown: Estimate) -> bool:
    """Return whether a difference is told from none."""
    return shown.low > 0 or shown.high < 0
