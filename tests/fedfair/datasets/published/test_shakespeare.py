"""Shakespeare: speeches, words before and next, and how rich a vocabulary is."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
import torch

from fedfair.datasets.published import shakespeare
from fedfair.protocol.task import Task


def test_sizes(data_dir: Path) -> None:
    data = shakespeare.load()
    assert data.x.shape == (153_582, 3)
    assert (data.classes, data.names) == (1000, ("simplest", "simpler", "richer", "richest"))
    assert len(shakespeare.participants()) == int(data.participant.max()) + 1 == 171
    assert int(torch.bincount(data.participant).min()) >= 100


def test_the_first_speeches_word_by_word(data_dir: Path) -> None:
    """First Citizen, three times; contexts start anew with every speech."""
    data, number = shakespeare.load("role"), shakespeare._numbers()
    none, unknown = shakespeare.NOTHING, shakespeare.UNKNOWN
    expected = []
    for speech in ("before we proceed any further hear me speak", "you are all resolved rather to die than to famish",
                   "first you know caius marcius is chief enemy to the people"):
        words = [number.get(word, unknown) for word in speech.split()]
        expected += [(([none] * 3 + words)[place : place + 3], word) for place, word in enumerate(words)
                     if word != unknown]
    first = data.participant == data.names.index("First Citizen")
    found = list(zip(data.x[first].tolist(), data.y[first].tolist(), strict=True))
    assert found[: len(expected)] == expected
    assert any(unknown in context for context, _ in expected)  # a rare word is in contexts, and nobody's next word
    assert torch.equal(data.group, data.participant)


def test_every_word_is_the_context_of_the_next(data_dir: Path) -> None:
    data = shakespeare.load()
    inside = (data.x[1:, 2] == data.y[:-1]) & (data.x[1:, 1] == data.x[:-1, 2])
    begins = data.x[1:, 2] == shakespeare.NOTHING
    after_unknown = data.x[1:, 2] == shakespeare.UNKNOWN
    assert bool((inside | begins | after_unknown).double().mean() > 0.99)  # but for the roles left out
    assert int(data.y.max()) < shakespeare.VOCABULARY
    assert torch.equal(torch.bincount(data.y).argmax(), torch.tensor(0))


def test_quarters_are_ordered_by_richness_and_hold_whole_participants(data_dir: Path) -> None:
    data = shakespeare.load()
    values = torch.tensor([shakespeare.rarefied(counts.values()) for counts in shakespeare.participants().values()])
    quarter = torch.empty(171, dtype=torch.long)
    quarter[data.participant] = data.group
    assert torch.bincount(quarter).tolist() == [43, 43, 43, 42]
    for below in range(3):
        assert values[quarter == below].max() <= values[quarter == below + 1].min()
    assert torch.equal(quarter[data.participant], data.group)


@pytest.mark.parametrize(("counts", "sample"), [([3, 1, 1], 2), ([4, 2], 3), ([1, 1, 1, 1], 4), ([6], 3)])
def test_rarefaction_is_the_mean_over_all_samples(counts: list[int], sample: int) -> None:
    spoken = [word for word, count in enumerate(counts) for _ in range(count)]
    all_samples = [len(set(chosen)) for chosen in itertools.combinations(spoken, sample)]
    assert shakespeare.rarefied(counts, sample) == pytest.approx(sum(all_samples) / len(all_samples))


def test_rarefaction_does_not_grow_with_the_text_as_the_number_of_words_does() -> None:
    short = Counter(dict.fromkeys(range(40), 5))
    long = Counter(dict.fromkeys(range(40), 50))
    assert shakespeare.rarefied(long.values()) == pytest.approx(shakespeare.rarefied(short.values()), rel=0.05)
    with pytest.raises(ValueError, match="there are 5 words, fewer than the sample of 100"):
        shakespeare.rarefied([5])


def test_an_unknown_attribute_is_refused(data_dir: Path) -> None:
    with pytest.raises(ValueError, match="unknown protected attribute of shakespeare 'play'"):
        shakespeare.load("play")


def test_natural_clients_are_the_participants(data_dir: Path) -> None:
    task = Task(dataset="shakespeare", model="next_word", partition="natural")
    clients, parts = task.clients_data(), task.data()
    assert len(clients) == 171
    for number, held in clients.items():
        assert all(bool((part.participant == number).all()) for _, part in held)
    for split in ("train", "valid", "test"):
        dealt = torch.cat([getattr(held, split).records for held in clients.values()])
        assert torch.equal(dealt.sort().values, getattr(parts, split).records.sort().values)
    assert min(len(held.train) for held in clients.values()) > 0
