"""A hook of mkdocs: docs/settings.md shows the settings that there are when the pages are built."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulations.drawing.table import Table, markdown
from simulations.settings.catalogue import Setting, options_by_strategy, sections

MARK = "<!-- settings -->"


def on_page_markdown(markdown_: str, **_: Any) -> str:
    """Return a page with the tables of settings in place of its mark."""
    return markdown_.replace(MARK, settings()) if MARK in markdown_ else markdown_


def settings() -> str:
    """Return tables of all settings, and of the options of every strategy that has some."""
    options = {f"Options of {name}": options for name, options in options_by_strategy().items()}
    return "\n\n".join(f"## {title}\n\n{_table(part)}" for title, part in {**sections(), **options}.items())


def _table(part: Iterable[Setting]) -> str:
    """Return settings as a table."""
    rows = [(f"`{setting.name}`", f"`{setting.default}`" if setting.default else "", setting.allowed, setting.meaning)
            for setting in part]
    return markdown(Table(columns=("setting", "default", "allowed", "meaning"), rows=rows))
