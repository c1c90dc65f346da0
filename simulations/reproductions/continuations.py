"""The non-private model that knows a small text best: the most frequent word after the same one or two words."""

from __future__ import annotations

from collections import Counter, defaultdict

import pandas as pd

from fedfair.datasets import GroupedDataset, Parts

_LEAST = 2  # how often a continuation must have been seen, or fewer words before it are looked at

Known = dict[tuple[int, ...], tuple[int, int]]
"""The most frequent word after some words, and how often it came."""


def learned(train: GroupedDataset, words: int = 2) -> Known:
    """From all records of all participants together, after up to so many words."""
    seen: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for before, word in zip(train.x.tolist(), train.y.tolist(), strict=True):
        for length in range(words + 1):
            seen[tuple(before[len(before) - length:])][word] += 1
    return {before: counts.most_common(1)[0] for before, counts in seen.items()}


def predicted(known: Known, before: list[int], words: int = 2) -> int:
    """The continuation of as many words before as were seen often enough."""
    for length in range(words, 0, -1):
        word, times = known.get(tuple(before[len(before) - length:]), (0, 0))
        if times >= _LEAST:
            return word
    return known[()][0]


def accuracies(parts: Parts) -> tuple[pd.Series, int]:
    """By participant (the groups of `parts`), the accuracy on the test part; and how many words were ever predicted."""
    known, test = learned(parts.train), parts.test
    words = [predicted(known, before) for before in test.x.tolist()]
    right = pd.Series(words).eq(pd.Series(test.y.tolist()))
    names = pd.Series(test.group.tolist()).map(dict(enumerate(test.names)))
    return right.groupby(names).mean(), len(set(words))
