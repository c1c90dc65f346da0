"""Streams of random numbers: different ones never meet, and the global generators are left alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import shake_128
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from fedfair.datasets.partition import by_group, by_site
from fedfair.datasets.published.images import digits
from fedfair.datasets.split import reduce_group, split
from fedfair.gradients.probe import per_example
from fedfair.mechanisms import randomness
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import add_gaussian
from fedfair.mechanisms.randomness import Source, SystemEntropy, generator, key, normal, poisson, random_bits, stream
from fedfair.models import find, published


def test_every_part_and_their_order_matter() -> None:
    keys = [key(*parts) for parts in ((1, "a"), ("a", 1), (1, "a", 0), (1, "a", 1), (2, "a"), (1, "b"), (11, "a"),
                                      (1, "1a"), (1, 2, 3), (12, 3), (1, 23), (123,))]
    assert len(set(keys)) == len(keys)
    assert all(0 <= k < 2**64 for k in keys)


def test_a_key_is_the_same_in_every_process() -> None:
    """Unlike Python's own hash of a string, which is salted: a resumed run must draw what the first one drew."""
    assert key(0, "sampling", 1) == 0xBBD496EB83B99F49


def test_seeds_purposes_clients_and_steps_give_different_streams() -> None:
    drawn = {tuple(torch.randn(4, generator=generator(*parts)).tolist())
             for parts in product((0, 1, 2), ("noise", "counts", "split"), (0, 1, 2, 10), (0, 1, 2, 10))}
    assert len(drawn) == 3 * 3 * 4 * 4


def test_the_same_parts_give_the_same_stream_whatever_ran_before() -> None:
    first = torch.randn(8, generator=generator(3, "noise", 1, 2))
    torch.randn(5, generator=generator(3, "noise", 1, 1))
    assert torch.equal(torch.randn(8, generator=generator(3, "noise", 1, 2)), first)


def test_no_two_of_a_hundred_thousand_steps_share_a_seed() -> None:
    """Random seeds of 32 bits would meet about once in this many steps."""
    seeds = [generator(0, "noise", 3, step).initial_seed() for step in range(100_000)]
    assert len({seed & 0xFFFFFFFF for seed in seeds}) == 100_000


def test_pytorch_forgets_all_but_32_bits_of_a_seed_and_a_stream_does_not() -> None:
    few = [torch.randn(5, generator=torch.Generator().manual_seed(seed)) for seed in (7, 7 + 2**32)]
    assert torch.equal(*few)
    many = [torch.randn(5, generator=stream(seed, "noise")) for seed in (7, 7 + 2**32, 7 + 2**64, 7 + 2**128)]
    assert len(torch.stack(many).unique()) == 20


def test_a_stream_is_the_mersenne_twister_of_a_digest_of_all_its_parts() -> None:
    """NumPy's, with the same state: PyTorch keeps a state as bytes, in an order that it does not promise."""
    words = np.frombuffer(shake_128(b"a key\0noise\x003\x0017").digest(4 * 624), dtype="<u4")
    twister = np.random.MT19937(0)
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    drawn = torch.empty(2000, dtype=torch.int64).random_(0, 2**20, generator=stream("a key", "noise", 3, 17))
    assert drawn.tolist() == (twister.random_raw(2000) % 2**20).tolist()


def test_streams_of_a_hundred_thousand_parts_have_nothing_in_common() -> None:
    drawn = torch.stack([torch.empty(2, dtype=torch.int64).random_(0, 2**63 - 1, generator=stream(*parts))
                         for parts in product(("a", "b"), ("noise", "counts"), range(50), range(500))])
    assert len(drawn.unique()) == drawn.numel() == 200_000


def test_a_stream_leaves_no_trace_in_others() -> None:
    """They start from one template, which no draw may change."""
    first = torch.randn(1000, generator=stream("a key", "noise"))
    torch.randn(7, generator=stream("another", "noise")), generator(0, "split").manual_seed(5)
    assert torch.equal(torch.randn(1000, generator=stream("a key", "noise")), first)


@pytest.mark.parametrize("make", [generator, stream])
def test_neighbouring_steps_are_not_correlated(make: Callable[..., torch.Generator]) -> None:
    drawn = torch.stack([torch.randn(200, generator=make(0, "noise", 0, step)) for step in range(501)])
    found = [float(torch.corrcoef(torch.stack([drawn[:-lag].flatten(), drawn[lag:].flatten()]))[0, 1])
             for lag in (1, 2)]
    assert max(map(abs, found)) < 5 / (100_000**0.5)


def test_the_global_generators_are_left_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    data = digits()
    parts = reduce_group(split(data, (0.7, 0.1, 0.2), 0), "8:40", 0)
    by_site(100, 3, 0), by_group(data.group, 10, 3)
    x, y = data.x[poisson(0, 1, data.records, 0.02)], data.y[poisson(0, 1, data.records, 0.02)]
    for name in ("mlp", "logistic"):
        model: nn.Module = find.build(name, (), x.shape[1:], 10, 0, torch.float64)
        probe = per_example(model, published.loss, x, y)
        add_gaussian(probe.weighted_sum(Flat(1.0).coefficients(probe.norms, y)), 1.0, generator(0, "noise"))
    find.build("lenet", (), (1, 28, 28), 10, 0, torch.float32)
    assert len(parts.train) > 0
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]


def test_results_do_not_depend_on_the_global_generator() -> None:
    made = []
    for seed in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            made.append(find.build("mlp", (), (4,), 2, 0, torch.float32))
            made.append(split(digits(), (0.5, 0.0, 0.5), 0).train.x)
    assert torch.equal(made[0][1].weight, made[2][1].weight)
    assert torch.equal(made[1], made[3])


@pytest.mark.parametrize("source", [stream("a key", "noise"), SystemEntropy()], ids=["seeded", "system"])
def test_all_64_bits_are_fair_and_independent(source: Source) -> None:
    bits = np.unpackbits(random_bits(source, 20_000).view(np.uint8)).reshape(-1, 64).astype(float)
    assert np.abs(bits.mean(0) - 0.5).max() < 6 / 2 / 20_000**0.5
    assert np.abs(np.corrcoef(bits, rowvar=False)[np.triu_indices(64, 1)]).max() < 6 / 20_000**0.5


def test_noise_of_the_operating_system_reaches_eight_and_a_half_deviations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its uniform numbers have 53 bits: the largest of them makes the longest pair of normal numbers."""
    monkeypatch.setattr(randomness, "random_bits", lambda source, count: np.array([2**64 - 1, 0], dtype=np.uint64))
    assert float(normal(SystemEntropy(), 1, torch.float64)) == pytest.approx(8.57, abs=0.005)
