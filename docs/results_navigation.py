"""A hook of mkdocs: under "Measured" the navigation lists every page of results that there is, by its title."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SECTION = "Measured"


def on_config(config: Any) -> Any:
    """Return mkdocs' configuration with the pages of results added to their section."""
    (measured,) = (entry[SECTION] for entry in config.nav if SECTION in entry)
    measured += [{title: page} for title, page in pages(Path(config.docs_dir))]
    return config


def pages(docs: Path) -> list[tuple[str, str]]:
    """Return the title, up to a colon, and the path in `docs` of every page of results, sorted by title."""
    titles = ((page.read_text().splitlines()[0].removeprefix("# ").partition(":")[0], page)
              for page in docs.glob("results/*/*.md"))
    return sorted((title, page.relative_to(docs).as_posix()) for title, page in titles)
