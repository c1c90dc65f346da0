"""The best non-private model of a small text: the most frequent word after the same one or two words."""

from __future__ import annotations

from collections import Counter, defaultdict

import pandas as pd

from fedfair.datasets import GroupedDataset, Parts

_LEAST = 2  # how often a continuation must have been seen; below that, fewer words before it are used

Known = dict[tuple[int, ...], tuple[int, int]]
"""By the words before: the most frequent next word, and how often it came."""


def learned(train: GroupedDataset, words: int = 2) -> Known:
    """Count the continuations of up to `words` words in all records of all participants together."""
    seen: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for before, word in zip(train.x.tolist(), train.y.tolist(), strict=True):
        for length in range(words + 1):
            seen[tuple(before[len(before) - length:])][word] += 1
    return {before: counts.most_common(1)[0] for before, counts in seen.items()}


def predicted(known: Known, before: list[int], words: int = 2) -> int:
    """Predict the continuation of as many of the words `before` as were seen often enough."""
    for length in range(words, 0, -1):
        word, times = known.get(tuple(before[len(before) - length:]), (0, 0))
        if times >= _LEAST:
            return word
    return known[()][0]


def accuracies(parts: Parts) -> tuple[pd.Series, int]:
    """Return each participant's accuracy on the test part (participants are the groups of `parts`), and the number of
    distinct words predicted.
    """
    known, test = learned(parts.train), parts.test
    words = [predicted(known, before) for before in test.x.tolist()]
    right = pd.Series(words).eq(pd.Series(test.y.tolist()))
    names = pd.Series(test.group.tolist()).map(dict(enumerate(test.names)))
    return right.groupby(names).mean(), len(set(words))
