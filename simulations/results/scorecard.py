"""A scorecard: what each category and each bin of a number adds to a record's score, for models linear in bins."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from torch import Tensor, nn

from fedfair.datasets import GroupedDataset
from fedfair.datasets.features.encoding import Encoding, Feature
from fedfair.fairness.intervals import quantile
from fedfair.fairness.noisy_figures import CONFIDENCE
from fedfair.moments.filled_bins import is_counted

SCORECARD = "scorecard.csv"
EVERY = "every record"
"""In place of a column: what every record gets."""
RECORDS = "training records"
"""Column: about how many have a category or bin; 0 where it is taken for none, and the score decides nothing."""

LOW, HIGH = "low of", "high of"
"""Begin the names of the columns, one for each class, with the ends of a score's interval."""


def is_scorecard(model: str, data: GroupedDataset) -> bool:
    """Return whether a model adds up one number for each category and bin.

    Args:
        model: Name of the model.
        data: Records with its features.
    """
    return model == "linear" and is_counted(data.encoding)


def scorecard(model: nn.Module, encoding: Encoding, labels: Sequence[str], records: Tensor | None = None,
              deviations: Tensor | None = None) -> pd.DataFrame:
    """Return a row for each category and bin, and a last one for what every record gets.

    The score of a class is the sum of its numbers over the record's categories and bins; scores are logits, so the
    class of the largest is decided for.

    Args:
        model: A trained model for which `is_scorecard` holds.
        encoding: How the columns of a table become its features.
        labels: Names of the classes.
        records: About how many training records have each category and bin, 0 where it is taken for none,
            `[d - 1]`; None where that is not known.
        deviations: By how much the noise of privacy moves the weight of either of two classes, `[d]`, NaN where the
            number of records does not stand out of its noise (`fedfair.moments.front.Refits`); None where that is not
            known.

    Returns:
        Columns: column, value, the number of records where it is known, where deviations are known the ends of an
            interval for each class, which holds the score of a fit without noise to the same records with about 95 %,
            and last the score of each class. The mean of a row over the classes is 0.
    """
    layer = next(module for module in model.modules() if isinstance(module, nn.Linear))
    bounding = encoding.bounding
    assert bounding is not None
    unit = bounding.last / bounding.constant
    scores = layer.weight.detach().double() * unit
    scores = (scores - scores.mean(0)).T.clone()
    scores[-1] *= bounding.constant
    rows = [(feature.column, _in_words(feature)) for feature in encoding.features]
    table = pd.DataFrame([*rows, (EVERY, "")], columns=["column", "value"])
    if records is not None:
        table = table.assign(**{RECORDS: [*map(str, records.int().tolist()), ""]})
    columns = {f"score of {label}": own for label, own in zip(labels, scores.T.tolist(), strict=True)}
    if deviations is None:
        return table.assign(**columns)
    reach = quantile(CONFIDENCE) * deviations * unit
    reach[-1] *= bounding.constant
    ends: dict[str, list[float]] = {}
    for label, own in zip(labels, scores.T, strict=True):
        ends |= {f"{LOW} {label}": (own - reach).tolist(), f"{HIGH} {label}": (own + reach).tolist()}
    return table.assign(**ends, **columns)  # the scores stay last, where readers of before look for them


_SWITCHED = {(None, 0.5): "0 (under 0.5)", (0.5, None): "1 (0.5 and over)"}
"""The bins of a column of 0 and 1, which a fit tells by its counts."""


def _in_words(feature: Feature) -> str:
    """Return a category, or a bin's ends."""
    if feature.missing:
        return "missing"
    if feature.bin is None:
        return str(feature.category)
    low, high = feature.bin
    if (low, high) in _SWITCHED:
        return _SWITCHED[low, high]
    if low is None and high is None:
        return "any number"
    if low is None:
        return f"under {high:,.6g}"
    return f"{low:,.6g} and over" if high is None else f"{low:,.6g} to under {high:,.6g}"
