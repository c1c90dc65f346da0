"""Names that come from data, made harmless where people read them in terminals.

Names of columns in one text, separated by commas; a name that holds a comma stands in double quotes.

Names of values that are no texts. Warnings that are given once.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from functools import lru_cache
from logging import Logger
from unicodedata import bidirectional, category

_OBEYED = ("Cc", "Cs", "Zl", "Zp")  # controls, lone surrogates, separators of lines and paragraphs
_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")  # what follows, to the left or right


def value_name(value: object) -> str:
    """Return the name of a value, by itself alone: a whole number has no decimals.

    Args:
        value: A class, a group, a site, a category, or a code of one.

    Examples:
        >>> value_name(2.0), value_name(2.5), value_name("2.0"), value_name(True)
        ('2', '2.5', '2.0', 'True')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def toml_key(name: str) -> str:
    """Return a name as a key of a table in TOML, in quotes where it must be.

    Args:
        name: Name of a column.

    Examples:
        >>> toml_key("born"), toml_key("hired on")
        ('born', '"hired on"')
    """
    return name if name.isidentifier() and name.isascii() else json.dumps(name)


def visible(text: str, keep: str = "") -> str:
    r"""Show characters that a terminal would obey: the escape character as \x1b, a newline as \x0a.

    These are all control characters, and those that turn the direction of the text around them. A backslash stays.

    Args:
        text: Text with names from data.
        keep: Characters to leave as they are, for example a newline in a text of several lines.

    Returns:
        The text, without such characters.
    """
    if text.isprintable():
        return text
    return "".join(character if character in keep else _shown(character) for character in text)


def _shown(character: str) -> str:
    """Write a character as it is, or as an escape if a terminal would obey it."""
    if category(character) not in _OBEYED and bidirectional(character) not in _TURNING:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def names_in(text: str) -> list[str]:
    """Return the names in a text such as `age,"Sex, as recorded"`."""
    rows = csv.reader([text], skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def as_text(names: Iterable[str]) -> str:
    """Return names as the text from which `names_in` returns them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


@lru_cache(maxsize=32)
def warn_once(log: Logger, text: str) -> None:
    """Log a warning that every reader of a file, or every seed and method of a comparison, would repeat.

    Args:
        log: Where.
        text: What is said, once in a process.
    """
    log.warning(text)
