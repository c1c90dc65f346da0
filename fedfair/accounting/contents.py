"""What the files of a result hold, what protects it, and why a folder cannot be published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from fedfair.accounting.events import Unit

Protection = Literal["no records", "public", "releases", "held-out", "training", "unknown"]

MEANINGS: Mapping[Protection, str] = {
    "no records": "it says nothing of records",
    "public": "public by assumption",
    "releases": "post-processing of the releases in the ledger",
    "held-out": "not protected: exact, of held-out records",
    "training": "not protected: exact, of training records, for simulation alone",
    "unknown": "not protected, as far as fedfair knows",
}
"""What protects a part of a file, in words."""


class Part(NamedTuple):
    """A part of a file.

    Attributes:
        holds: What it is.
        protection: What protects it (see `MEANINGS`).
    """

    holds: str
    protection: Protection


OTHER = (Part("another file", "unknown"),)
"""What is known of a file that fedfair does not write."""

Contents = Mapping[str, tuple[Part, ...]]
"""The parts of each file, by its name."""


def to_json(contents: Contents) -> dict[str, list[dict[str, str]]]:
    """Return contents as plain values."""
    return {name: [{"holds": part.holds, "protection": part.protection, "protected_by": MEANINGS[part.protection]}
                   for part in parts] for name, parts in contents.items()}


def from_json(values: Mapping[str, Iterable[Mapping[str, str]]]) -> Contents:
    """Read what `to_json` returned."""
    return {name: tuple(Part(part["holds"], part["protection"]) for part in parts)  # type: ignore[arg-type]
            for name, parts in values.items()}


def exposed(contents: Contents, *kinds: str) -> list[str]:
    """Return "file: what" for every part that has one of these protections.

    Args:
        contents: Parts by file.
        *kinds: Names of protections.
    """
    named = []
    for name, parts in contents.items():
        named += [f"{name}: {part.holds}" for part in parts if part.protection in kinds]
    return named


def objections(contents: Contents, protects: Unit, doubt: str | None) -> dict[str, list[str]]:
    """Return why publishing files would harm the privacy of what a run trained on, and of held-out records.

    A participant has held-out records too, so their figures count against both.

    Args:
        contents: Parts by file.
        protects: What the run protects, a "record" or a "participant".
        doubt: Why the guarantee of the releases is not proved, or None.

    Returns:
        Reasons for each of the two; none where nothing is to be said against it.
    """
    exact = exposed(contents, "training", "unknown", *(("held-out",) if protects == "participant" else ()))
    return {f"training {protects}s": [doubt, *exact] if doubt else exact,
            "held-out records": exposed(contents, "held-out", "unknown")}
