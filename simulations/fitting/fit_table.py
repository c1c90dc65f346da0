"""What a fit tells, for a terminal or a log: figures by group, gaps between them, and what must be known of them."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate
from simulations.fitting.fit_folder import OF_ALL, Story
from simulations.fitting.privacy_statement import how_selected


def story_table(story: Story) -> RenderableType:
    """Lay out what a fit tells.

    Args:
        story: The fit.
    """
    table = Table(title=f"{visible(story.name)}: test records, with 95 % intervals for sampling error and noise")
    columns = {"records": "records", "accuracy": "accuracy", "auc": "AUC", "positive_rate":
               f"{visible(story.favourable)} predicted"}
    for name in ("group", *columns.values()):
        table.add_column(Text(name), justify="left" if name == "group" else "right")
    for group in (*story.groups, "all"):
        table.add_row(Text(visible(group)), *(_cell(story.figure(metric, group)) for metric in columns))
    by_site = (_by_site(story, columns), Text(visible(story.by_site.finding))) if story.by_site.sites else ()
    gaps = Table(show_header=False, box=None)
    for metric, words in OF_ALL.items():
        gaps.add_row(words, _cell(story.figure(metric)))
    lines = [Text(visible(line)) for line in filter(None, (story.finding, how_selected(story), *story.doubts))]
    promised = Text(f"epsilon {story.epsilon:.4g} at delta {story.ledger.delta:.3g} for every record: "
                    f"{story.ledger.guarantee}")
    return Group(table, *by_site, gaps, *lines, promised)


def _by_site(story: Story, columns: Mapping[str, str]) -> Table:
    """Return a table of figures by site, and of selection rates by group within each."""
    table = Table(title="by site")
    for name in ("site", *columns.values(), *(f"of {visible(group)}" for group in story.groups)):
        table.add_column(Text(name), justify="left" if name == "site" else "right")
    for site in story.by_site.sites:
        own = [_cell(story.by_site.at(site, metric)) for metric in columns]
        table.add_row(Text(visible(site)), *own, *(
            _cell(story.by_site.at(site, "positive_rate", group)) for group in story.groups))
    return table


def _cell(shown: Estimate) -> Text:
    """Return a figure with its interval."""
    return Text.assemble(shown.text, (f"  {shown.interval}", "dim") if shown.interval else "")
