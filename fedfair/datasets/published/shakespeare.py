"""Tiny Shakespeare: predict the next word; the participants are 171 speaking roles.

Source: Karpathy 2015, char-rnn. Roles as participants: McMahan et al. 2017; here with words instead of letters.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import numpy as np
import torch
from scipy.special import gammaln

from fedfair.datasets import Source
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.plugins.registry import unknown

_FILE = PublicFile(
    "shakespeare.txt", "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
_WORD = re.compile(r"[a-z]+(?:['-][a-z]+)*")

CONTEXT = 3
"""Number of words in the context of the one to predict."""

VOCABULARY = 1000
"""Number of words that can be predicted: the most frequent ones, 82 % of all words spoken."""

UNKNOWN, NOTHING = VOCABULARY, VOCABULARY + 1
"""In a context: a word that is not in the vocabulary, and no word yet."""

LEAST_RECORDS = 100
"""Roles with fewer records are left out."""

GROUPS = ("vocabulary", "role")
RICHNESS = ("simplest", "simpler", "richer", "richest")
"""Quarters of the participants, by the richness of their vocabulary."""

CUTS = (74.3, 77.07, 78.84)
"""Where the quarters of the participants meet: constants, so that no participant moves another to another group."""


def load(group: str | None = None) -> GroupedDataset:
    """Load contexts `x` `[n, 3]`, the words before, and next words `y` `[n]`; a participant is a speaking role.

    The words to be predicted are the classes, whose names are public by assumption. Words are lower-case, numbered by
    falling frequency; a context does not reach back beyond the speech. Records whose
    next word is not in the vocabulary are left out, so that no model gains by predicting "unknown". Roles with the same
    name in several plays ("First Murderer") are one participant.

    `group` is "vocabulary" (default), the quarters of the participants by `rarefied`, or "role", each participant as a
    group; raises `ValueError` for another.
    """
    group = group or GROUPS[0]
    if group not in GROUPS:
        raise unknown("protected attribute of shakespeare", group, GROUPS)
    roles, number = participants(), _numbers()
    positions = {role: position for position, role in enumerate(roles)}
    records: list[tuple[int, list[int], int]] = []
    for role, speech in _speeches():
        if role in positions:
            records += [(positions[role], *record) for record in _records(speech, number)]
    participant, x, y = (torch.tensor(column) for column in zip(*records, strict=True))
    groups = torch.arange(len(roles))
    if group == "vocabulary":
        groups = torch.tensor([bisect(CUTS, rarefied(spoken.values())) for spoken in roles.values()])
    return GroupedDataset(x, y, groups[participant], tuple(roles) if group == "role" else RICHNESS, VOCABULARY,
                          labels=tuple(number), participant=participant)


@lru_cache(maxsize=1)
def participants() -> Mapping[str, Counter[str]]:
    """Return the participants by name, in order, and how often each speaks each word, in the vocabulary or not."""
    spoken: dict[str, Counter[str]] = {}
    for role, speech in _speeches():
        spoken.setdefault(role, Counter()).update(speech)
    known = _numbers()
    return {role: counts for role, counts in sorted(spoken.items())
            if sum(count for word, count in counts.items() if word in known) >= LEAST_RECORDS}


def rarefied(counts: Iterable[int], sample: int = 100) -> float:
    """Return how many distinct words a random `sample` of a speaker's words has on average, from each word's count.

    Unlike the number of distinct words, this does not grow with the length of the text: `sum_w 1 - C(n - c_w, s) /
    C(n, s)` (Hurlbert 1971; for vocabularies, McCarthy and Jarvis 2007). Raises `ValueError` for fewer words than the
    sample.
    """
    c = np.fromiter(counts, dtype=float)
    n = c.sum()
    if n < sample:
        raise ValueError(f"there are {n:.0f} words, fewer than the sample of {sample}: take a smaller sample")
    rest = n - c
    possible = rest >= sample
    absent = np.zeros_like(c)
    absent[possible] = np.exp(_log_choose(rest[possible], sample) - _log_choose(n, sample))
    return float((1 - absent).sum())


@lru_cache(maxsize=1)
def _speeches() -> list[tuple[str, list[str]]]:
    """Return every speech in order: who speaks, and the words."""
    speeches = []
    for block in re.split(r"\n{2,}", fetch(_FILE).read_text(encoding="utf-8").strip()):
        role, _, text = block.partition("\n")
        speeches.append((role.removesuffix(":"), _WORD.findall(text.lower())))
    return speeches


@lru_cache(maxsize=1)
def _numbers() -> Mapping[str, int]:
    """Return the number of every word of the vocabulary; the most frequent word is 0."""
    count = Counter(word for _, speech in _speeches() for word in speech)
    ranked = sorted(count, key=lambda word: (-count[word], word))
    return {word: number for number, word in enumerate(ranked[:VOCABULARY])}


def _records(speech: list[str], number: Mapping[str, int]) -> Iterator[tuple[list[int], int]]:
    """Yield the context and the number of every word of a speech that is in the vocabulary."""
    context = [NOTHING] * CONTEXT
    for word in speech:
        next_word = number.get(word, UNKNOWN)
        if next_word != UNKNOWN:
            yield context, next_word
        context = [*context[1:], next_word]


def _log_choose(n: np.ndarray | float, k: float) -> np.ndarray:
    """Return the logarithm of the binomial coefficient `n` over `k`."""
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


SOURCES = {"shakespeare": Source(load, {}, attribute=GROUPS[0])}
"""The text by name."""
