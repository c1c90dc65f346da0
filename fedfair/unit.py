"""The unit of privacy: what neighbouring data sets differ by, and what is public beside it."""

from __future__ import annotations

from typing import Literal

Unit = Literal["record", "participant"]
"""What neighbouring data sets differ by, and so what an epsilon protects."""

PUBLIC: dict[Unit, str] = {
    "record": "numbers of records by group and client, expected batch size",
    "participant": "number of participants, expected number of them in a round",
}
"""What is taken as public, by what is protected."""
