"""What a fit tells, for a terminal or a log: figures by group, gaps between them, and what must be known of them."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from fedfair.datasets.names import visible
from fedfair.fairness.metrics import ALL
from simulations.drawing.table import Row, Table
from simulations.drawing.terminal import terminal
from simulations.fitting.deciding import deciding, leaks
from simulations.fitting.fit_folder import OF_ALL, Story
from simulations.fitting.privacy_statement import how_selected


def story_table(story: Story) -> RenderableType:
    """Lay out what a fit tells."""
    columns = {"records": "records", "accuracy": "accuracy", "auc": "AUC", "positive_rate":
               f"{story.favourable} predicted"}
    rows: list[Row] = [(group, *(story.figure(metric, group) for metric in columns))
                       for group in (*story.groups, "all")]
    table = Table("", f"{story.name}: {story.measured_on}, with 95 % intervals for sampling error and noise",
                  ("group", *columns.values()), rows)
    by_site = (terminal(_by_site(story, columns)), Text(visible(story.by_site.finding))) if story.by_site.sites else ()
    gaps = Table(columns=("", ""), rows=[(words, story.figure(name)) for name, words in OF_ALL.items()],
                 framed=False)
    among = f"Gaps are those among {story.between}, as was asked for." if story.among else ""
    lines = [Text(visible(line)) for line in filter(None, (story.finding, story.how_measured, among,
                                                      how_selected(story), leaks(deciding(story), story),
                                                      *story.doubts))]
    promised = Text(f"epsilon {story.epsilon:.4g} at delta {story.ledger.delta:.3g} for every record: "
                    f"{story.ledger.guarantee}")
    return Group(terminal(table), *by_site, terminal(gaps), *lines, promised)


def _by_site(story: Story, columns: Mapping[str, str]) -> Table:
    """Return a table of figures by site, and of selection rates by group within each."""
    asked = [*((metric, ALL) for metric in columns), *(("positive_rate", group) for group in story.groups)]
    rows: list[Row] = []
    for site in story.by_site.sites:
        rows.append((site, *(story.by_site.at(site, metric, group) for metric, group in asked)))
    return Table("", "by site", ("site", *columns.values(), *(f"of {group}" for group in story.groups)), rows)
