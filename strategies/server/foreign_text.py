"""Text that another machine wrote, made safe to show: no escapes of terminals, no markup, and a bounded length."""

from __future__ import annotations

import re
import unicodedata

_MOST = 500  # characters of a failure's reason
_MOST_OF_A_VALUE = 100
_MARKUP = re.compile(r"\[(/?[a-zA-Z#@][^\[\]]*|/)\]")  # what rich takes for a tag
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # controls, turns of the writing direction, private characters, breaks


def safe(text: str, most: int = _MOST) -> str:
    """Return `text` without control characters, with tags in round brackets, cut to `most` characters.

    Args:
        text: What a node sent.
        most: Number of characters that are kept.
    """
    kept = text[:8 * most]  # the rest is not worth reading
    seen = "".join(" " if unicodedata.category(one) in _UNSEEN else one for one in kept)
    plain = _MARKUP.sub(r"(\1)", " ".join(seen.split()))
    return plain if len(plain) <= most and len(kept) == len(text) else f"{plain[:most - 3]}..."


def shown(value: object) -> str:
    """Return a value that a node sent as it is shown in an error.

    Args:
        value: Anything; a long one is cut.
    """
    if isinstance(value, str | bytes | list | tuple):
        value = value[:_MOST_OF_A_VALUE]  # before it is written out
    return safe(repr(value), _MOST_OF_A_VALUE)
