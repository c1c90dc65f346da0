"""A hook of mkdocs: docs/settings.md shows the settings that there are when the pages are built."""

from __future__ import annotations

from typing import Any

from simulations.settings.catalogue import markdown

MARK = "<!-- settings -->"


def on_page_markdown(markdown_: str, **_: Any) -> str:
    """Return a page with the tables of settings in place of its mark."""
    return markdown_.replace(MARK, markdown()) if MARK in markdown_ else markdown_
