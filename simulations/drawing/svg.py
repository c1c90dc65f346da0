"""SVG elements: the one place that writes tags, escapes text and makes a file of a drawing."""

from __future__ import annotations

from html import escape

from fedfair.datasets.names import visible

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#767676")
"""Okabe and Ito 2008, told apart by colour-blind people; grey for their black, yellow left out as too pale."""


def element(tag: str, *inside: str, **attributes: object) -> str:
    """Write an element; `inside` is SVG already. `text_anchor` stands for text-anchor, `class_` for class."""
    opening = tag
    for name, value in attributes.items():
        opening += f' {name.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
    return f"<{opening}>{''.join(inside)}</{tag}>" if inside else f"<{opening}/>"


def escaped(words: str) -> str:
    """Escape words for a page or a drawing, which may hold no control characters."""
    return escape(visible(words))


def text(words: str, x: float, y: float, **attributes: object) -> str:
    """Write words that start, or are anchored, at a point."""
    return element("text", escaped(words), x=x, y=y, **attributes)


def path(d: str, class_: str, **attributes: object) -> str:
    """Write a path of a class."""
    return element("path", class_=class_, d=d, **attributes)


def document(title: str, width: float, height: float, style: str, *inside: str) -> str:
    """Write a file that needs nothing else, readable on light and on dark ground if `style` draws in grey."""
    return element("svg", element("title", escaped(title)), element("style", style), *inside,
                   xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:g} {height:g}", role="img") + "\n"


