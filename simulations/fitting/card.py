"""What a fit tells, in text: its model card, and the table that a terminal or a log shows.

The card in Markdown has the fields of Hugging Face's cards, in JSON those of OpenDP's registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedfair.datasets.names import visible
from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL
from simulations.drawing.table import Row, Table, markdown, terminal
from simulations.files.atomic_files import in_json
from simulations.fitting.beside import COMPARED, pairs
from simulations.fitting.caveats import caveats
from simulations.fitting.deciding import deciding, in_words, leaks
from simulations.fitting.figures_by_site import LESS, OF_SITES
from simulations.fitting.fit_folder import OF_ALL, OF_GROUPS, Story
from simulations.fitting.privacy_statement import how_selected, how_trained, promise, was_selected
from simulations.results.environment import installed

_HEAD = """---
library_name: fedfair
tags: [tabular-classification, differential-privacy, fairness]
metrics: [accuracy, roc_auc]
---"""
"""The fields that Hugging Face's hub reads."""

_RATIO = ("The ratio of selection rates is held against four fifths in United States employment law (29 CFR 1607.4); "
          "for credit and other decisions no such line is law.")


def card_in_markdown(story: Story) -> str:
    """Return the card as Markdown, with Hugging Face's fields above it."""
    lines = [_HEAD, f"# {story.name}", story.finding, *caveats(story),
             "## Model details", _details(story), *filter(None, [in_words(deciding(story), story)]), *_about(story),
             "## Intended use",
             f"Deciding between {' and '.join(story.description.labels)} ({_favourable(story)}) for people like those "
             "of the table, where the differences between groups below are acceptable. It was not tried on anybody "
             "else.",
             f"## Figures on {story.measured_on}", *filter(None, [story.how_measured]),
             "Every figure has an interval that holds with 95 % for sampling error and noise together.",
             _table(("group", *OF_GROUPS.values()), _groups(story)), _table(("all groups", "", ""), _all(story)),
             *_among(story), _table(("groups", *COMPARED.values()), _by_pair(story)), _RATIO,
             *_by_site(story), "## Privacy",
             *(f"**{part.heading}.** {part.text}" for part in promise(story)), "## How to use it",
             "`python predict.py ROWS.csv` needs nothing but Python; `fedfair predict FOLDER ROWS.csv` reads any "
             "table; `fedfair choose FOLDER --demographic-parity 0.05` takes another point of the front, at no cost."]
    return "\n\n".join(lines) + "\n"


def card_in_json(story: Story) -> str:
    """Return the card as JSON, for registries."""
    ledger = story.ledger
    selected = {"selection": how_selected(story)} if was_selected(story) else {}
    values: dict[str, Any] = {
        "name": story.name, **{name: story.asked[name] for name in ("owner", "purpose", "date", "rows")
                               if name in story.asked},
        "changed_by_fresh_noise": dict(story.changed), "library": "fedfair", "library_version": installed("fedfair"),
        "task": {"label": story.config["label"], "classes": list(story.description.labels),
                 "favourable": story.favourable if story.has_favourable else None,
                 "sensitive_attribute": story.config["group"], "groups": list(story.groups),
                 "site": story.config.get("site")},
        "deployment": {
            "privacy_unit": "one row", "neighbours": "add or remove one row", "mechanism": "Gaussian, of all rows",
            **selected,
            "flavor": "approximate differential privacy", "epsilon": story.epsilon, "delta": ledger.delta,
            "accountant": ledger.accountant, "guarantee": ledger.guarantee, "trust": ledger.trust.value,
            "randomness": story.config["randomness"], "noise": story.config["noise"],
            "data_description": (f"tables of {story.nodes} nodes, whose values stay with each" if story.nodes else
                                 "a table of the user's, whose values stay with its owner")},
        "figures": {group: _values(OF_GROUPS, partial(story.figure, group=group)) for group in story.groups},
        "gaps": _values(OF_ALL, story.figure), "gap_among": list(story.among), "sites": {}, "less_others": {}}
    told = story.by_site
    for site in told.sites:
        values["sites"][site] = {group: _values(OF_SITES, partial(told.at, site, group=group))
                                 for group in (ALL, *story.groups)}
    for group in story.groups if told.sites else ():
        values["less_others"][group] = _values(LESS, partial(told.less, group=group))
    values["promise"] = {part.heading: part.text for part in promise(story)}
    return in_json(values)


def _values(metrics: Iterable[str], figure: Callable[[str], Estimate]) -> dict[str, dict[str, float]]:
    """Return figures by metric: value, and the ends of the interval."""
    return {metric: figure(metric)._asdict() for metric in metrics}


def _favourable(story: Story) -> str:
    """Say which class is favourable."""
    return (f"{story.favourable} is the favourable class" if story.has_favourable else
            "none is the favourable class, so that there are no rates of decisions; --favourable names one to a fit")


def _details(story: Story) -> str:
    """Say what the model is."""
    return (f"A linear model on {len(story.description.encoding.features)} categories and bins, a scorecard "
            f"(`scorecard.csv`), {how_trained(story)}. "
            f"The sensitive attribute {story.config['group']} is "
            f"{'a' if story.config['attribute_in_model'] else 'no'} feature. {how_selected(story)}").rstrip()


def _by_site(story: Story) -> Iterable[str]:
    """Yield what is told by site, if anything is."""
    told = story.by_site
    if not told.sites:
        return
    rows = [(site, group) for site in told.sites for group in (ALL, *story.groups)]
    yield "### By site, and by group within each"
    yield told.finding
    yield _table(("group", *LESS.values()), ([group, *(_text(told.less(metric, group)) for metric in LESS)]
                                             for group in story.groups))
    yield _table(("site", "group", *OF_SITES.values()), (
        [site, group, *(_text(told.at(site, metric, group)) for metric in OF_SITES)] for site, group in rows))


def _groups(story: Story) -> Iterable[list[str]]:
    """Yield a row of figures for each group."""
    for group in story.groups:
        yield [group, *(_text(story.figure(metric, group)) for metric in OF_GROUPS)]


def _all(story: Story) -> Iterable[list[str]]:
    """Yield a row for each figure of all groups."""
    for metric, name in OF_ALL.items():
        shown = story.figure(metric)
        yield [name, shown.text, shown.interval]


def _about(story: Story) -> Iterable[str]:
    """Yield whose the model is, what it is for, when and of what it was made, and how stable its decisions are."""
    told = {"Purpose": story.asked.get("purpose"), "Owner": story.asked.get("owner"), "Made": story.asked.get("date"),
            "Rows": story.asked.get("rows") and f"{story.asked['rows']:,}"}
    made_by = f"fedfair {installed('fedfair')}."
    yield " ".join([*(f"{what}: {value}." for what, value in told.items() if value), made_by])
    if story.changed:
        yield story.stability


def _among(story: Story) -> Iterable[str]:
    """Yield among which groups gaps are, if somebody said so."""
    if story.among:
        yield f"Gaps are those among {story.between}, as was asked for without looking at the records."


def _by_pair(story: Story) -> Iterable[list[str]]:
    """Yield a row of differences for each two groups."""
    for pair in pairs(story):
        yield [f"{pair.first} less {pair.second}", *map(_text, pair.differences.values())]


def _text(shown: Estimate) -> str:
    """Return a figure with its interval."""
    return f"{shown.text} ({shown.interval})" if shown.interval else shown.text


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return markdown(Table(columns=columns, rows=[*rows]))


def story_table(story: Story) -> RenderableType:
    """Lay out what a fit tells, for a terminal or a log: figures by group, gaps, and what must be known of them."""
    of_one = {"auc": "AUC", "positive_rate": f"{story.favourable} predicted"} if story.has_favourable else {}
    columns = {"records": "records", "accuracy": "accuracy", **of_one}
    rows: list[Row] = [(group, *(story.figure(metric, group) for metric in columns))
                       for group in (*story.groups, "all")]
    table = Table("", f"{story.name}: {story.measured_on}, with 95 % intervals for sampling error and noise",
                  ("group", *columns.values()), rows)
    by_site = (terminal(_sites(story, columns)), Text(visible(story.by_site.finding))) if story.by_site.sites else ()
    gaps = Table(columns=("", ""), rows=[(words, story.figure(name)) for name, words in OF_ALL.items()],
                 framed=False)
    among = f"Gaps are those among {story.between}, as was asked for." if story.among else ""
    lines = [Text(visible(line)) for line in filter(None, (story.finding, story.how_measured, among,
                                                      how_selected(story), leaks(deciding(story), story),
                                                      *caveats(story)))]
    promised = Text(f"epsilon {story.epsilon:.4g} at delta {story.ledger.delta:.3g} for every record: "
                    f"{story.ledger.guarantee}")
    return Group(terminal(table), *by_site, terminal(gaps), *lines, promised)


def _sites(story: Story, columns: Mapping[str, str]) -> Table:
    """Return a table of figures by site, and of selection rates by group within each."""
    asked = [*((metric, ALL) for metric in columns), *(("positive_rate", group) for group in story.groups)]
    rows: list[Row] = []
    for site in story.by_site.sites:
        rows.append((site, *(story.by_site.at(site, metric, group) for metric, group in asked)))
    return Table("", "by site", ("site", *columns.values(), *(f"of {group}" for group in story.groups)), rows)
