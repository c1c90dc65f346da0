"""Numbers as people write them: with marks between thousands and before decimals, and signs of money or per cent."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pandas as pd
from pandas.api.extensions import take

from fedfair.datasets.reading import Decimal

_MONEY = (r"US\$|R\$|A\$|C\$|[$€£¥₹₽₩₺₪฿₫₴]|kr\.?|zł|Kč|Ft|lei|Rs\.?|Fr\.|"
          r"USD|EUR|GBP|CHF|SEK|NOK|DKK|PLN|CZK|HUF|JPY|CNY|INR|BRL|CAD|AUD|MXN|ZAR|TRY|RUB")
_SPACES = " \u00a0\u202f\u2009"
_SHAPE = re.compile(
    rf"(?P<owed>\()?(?P<minus>[-+\u2212]?)[{_SPACES}]*(?P<before>{_MONEY})?[{_SPACES}]*(?P<inner>[-+\u2212]?)"
    rf"(?P<digits>[\d.,](?:[\d.,'\u2019{_SPACES}]*[\d.,])?)(?P<power>[eE][-+]?\d+)?[{_SPACES}]*(?P<behind>{_MONEY}|[%‰])?"
    r"(?(owed)\))", re.ASCII)
_CODE, _WHOLE = "0[0-9]+", "[0-9]+"


@lru_cache(maxsize=2)
def _digits(mark: Decimal) -> re.Pattern[str]:
    """Return the pattern of digits with a decimal mark, in which the other mark or a space is between thousands."""
    other, decimals = "," if mark == "." else ".", re.escape(mark)
    thousands = rf"[1-9]\d{{0,2}}([{other}'\u2019{_SPACES}])\d{{3}}(?:\1\d{{3}})*"
    lakhs = r"|[1-9]\d?(?:,\d\d)+,\d{3}" if mark == "." else ""
    return re.compile(rf"(?:{thousands}{lakhs}|\d+)(?:{decimals}\d*)?|{decimals}\d+", re.ASCII)


def plain(text: str, mark: Decimal, sign: str | None = None) -> str | None:
    """Write a number as programs do, with a dot before decimals and without signs of money.

    Args:
        text: Text without spaces around it.
        mark: Decimal mark.
        sign: Sign of money or per cent that the number must have; money may be without. None allows any.

    Returns:
        The number as text, None if the text is no such number.
    """
    parts = _SHAPE.fullmatch(text)
    if not parts or not _digits(mark).fullmatch(parts["digits"]):
        return None
    if sign is not None and (own := _sign(parts)) != sign and (own or (sign in "%‰" and sign)):
        return None
    negative = bool(parts["owed"]) or "-" in (signs := parts["minus"] + parts["inner"]) or "\u2212" in signs
    digits = re.sub(rf"[^\d{re.escape(mark)}]", "", parts["digits"]).replace(mark, ".")
    return f"{'-' * negative}{digits}{parts['power'] or ''}"


def common_sign(texts: pd.Series) -> str | None:
    """Return the sign of money, "%" or "‰" of the numbers among some texts; "" without, None if they have several.

    Money may have no sign in some rows; per cent must be in all.
    """
    signs = {_sign(parts) for text in shapes(texts).drop_duplicates().index if (parts := _SHAPE.fullmatch(text))}
    named = signs - {""}
    if len(named) > 1 or (named & {"%", "‰"} and "" in signs):
        return None
    return named.pop() if named else ""


def numbers(texts: pd.Series, mark: Decimal, sign: str | None = "") -> pd.Series:
    """Return the number that each text `[n]` writes; missing where it writes none, or has another sign than `sign`.

    A sign of None allows any, and then no text decides how another one is read.
    """
    places, different = texts.factorize()
    if not len(different):
        return pd.to_numeric(texts, errors="coerce")
    found = _each_number(pd.Series(different), mark) if sign is None else _numbers_of(pd.Series(different), mark, sign)
    return pd.Series(take(found.array, places, allow_fill=True), texts.index, name=texts.name)


def _each_number(texts: pd.Series, mark: Decimal) -> pd.Series:
    """Return the number that each of some different texts writes, whatever the others are, with any sign."""
    readable = texts if mark == "." else texts.mask(texts.str.contains(".", regex=False))
    found = pd.to_numeric(readable, errors="coerce").astype("float64").replace([np.inf, -np.inf], np.nan)
    others = texts[found.isna()]
    if len(others):
        written = others.map({text: plain(text, mark) for text in others})
        found = found.fillna(pd.to_numeric(written, errors="coerce").astype("float64"))
    return found + 0.0  # "-0" is -0.0 among fractions, but 0 among whole numbers


def _numbers_of(texts: pd.Series, mark: Decimal, sign: str) -> pd.Series:
    """Return the number that each of some different texts writes."""
    if sign == "" and (mark == "." or not texts.str.contains(".", regex=False).any()):
        simple = pd.to_numeric(texts, errors="coerce")
        if bool(simple.notna().all()):
            return simple
    return pd.to_numeric(texts.map({text: plain(text, mark, sign) for text in texts}), errors="coerce")


def shapes(texts: pd.Series) -> pd.Series:
    """Return the shape of each different text, by text: the text with 1 for each of its digits from 1 to 9.

    Texts of one shape write numbers in the same way, or none, so that one of them stands for all: a column of a million
    numbers has a few dozen shapes. Texts with an exponent are a shape of their own each.
    """
    known = texts.dropna().drop_duplicates().astype("string")
    known.index = pd.Index(known.to_numpy(dtype=object), dtype=object)
    ones = known.str.replace("[2-9]", "1", regex=True)
    return ones.where(~known.str.contains("[0-9][eE]"), known)


def are_codes(texts: pd.Series) -> bool:
    """Return whether a column of text holds whole numbers of which one begins with a superfluous zero, as codes do."""
    known = texts.dropna().astype("string")
    return bool(known.str.fullmatch(_CODE).any() and known.str.fullmatch(_WHOLE).all())


def _sign(parts: re.Match[str]) -> str:
    """Return the sign of money or per cent of a number, "" if it has none."""
    return (parts["before"] or parts["behind"] or "").removesuffix(".")
