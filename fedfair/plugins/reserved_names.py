"""Names that a user's data cannot give to a group, since results use them themselves."""

from __future__ import annotations

ALL_GROUPS = "all"
"""The name of all groups together."""

RESERVED = (ALL_GROUPS, "gap", "parity")
"""Results name figures of all groups together by these, as in "accuracy_parity"."""
