"""Published splits by their usual names, and test parts whose labels the source keeps to itself."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import pandas as pd

from fedfair.datasets.grouped import PARTS
from fedfair.datasets.names import visible

_log = logging.getLogger(__name__)
_TRAIN, _VALID, _TEST = range(len(PARTS))
_NO_PART = -1
_USUAL = {"train": _TRAIN, "training": _TRAIN, "valid": _VALID, "validation": _VALID, "val": _VALID, "dev": _VALID,
          "devel": _VALID, "development": _VALID, "test": _TEST, "testing": _TEST, "holdout": _TEST}
_EVALUATION = ("eval", "evaluation")  # the test part of some, the validation part of others
_HIDDEN = ("-1", "-1.0", "?", "", "hidden", "unknown", "unlabeled", "unlabelled")


def parts_of(names: Sequence[str]) -> dict[str, int]:
    """Return the part of each published split, a position in `PARTS`, or -1 for all of them where none has such a part.

    What follows "_", "-" or "." in a name does not count: validation_matched is validation. "eval" is the test part
    where there is no other, and so is a validation part. Splits that are no part, beside others that are, are left out;
    the logger warns of both.

    Args:
        names: Names of the published splits.
    """
    first = {name: re.split(r"[_\-.]", name.lower())[0] for name in names}
    parts = {name: _USUAL[word] for name, word in first.items() if word in _USUAL}
    evaluation = [name for name, word in first.items() if word in _EVALUATION]
    parts |= dict.fromkeys(evaluation, _VALID if _TEST in parts.values() else _TEST)
    if _TRAIN not in parts.values():
        return dict.fromkeys(names, _NO_PART)
    others = [name for name in names if name not in parts]
    if others:
        _log.warning("left out: the published split %s, which is neither training, validation nor test part",
                     visible(", ".join(others)))
    if _TEST in parts.values():
        return parts
    if _VALID in parts.values():
        _log.warning("no test part is published: the validation part stands for it")
    return {name: _NO_PART if set(parts.values()) == {_TRAIN} else (_TEST if part == _VALID else part)
            for name, part in parts.items()}


def refuse_hidden_labels(labels: pd.Series, part: pd.Series) -> None:
    """Raise `ValueError` if the published test part has no labels, or classes that no other part has.

    Args:
        labels: Tidied label of each record; missing ones are NA.
        part: Part of each record, a position in `PARTS`.
    """
    tested = labels[part == _TEST]
    known = set(labels[part != _TEST].dropna().astype(str))
    alone = sorted(set(tested.dropna().astype(str)) - known)
    mend = "leave that split out, and the validation part stands for it, or get its labels"
    if len(tested) and (tested.isna().all() or set(alone) & set(_HIDDEN)):
        raise ValueError(f"the labels of the published test part are hidden ({_shown(tested)}), as benchmarks do: "
                         f"{mend}")
    if alone:
        raise ValueError(f"the published test part has a class that no other part has, {', '.join(map(repr, alone))}: "
                         f"nothing can be learned of it, and it may stand for hidden labels; {mend}")


def _shown(labels: pd.Series) -> str:
    """Return the labels of a test part in words."""
    return "no value" if labels.isna().all() else ", ".join(sorted(set(labels.dropna().astype(str)))[:3])
