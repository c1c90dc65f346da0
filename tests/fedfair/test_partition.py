"""Every record is held exactly once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.partition import by_group, by_mixture, by_site


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 13), st.integers(0, 3))
def test_every_record_has_one_holder(group: list[int], clients: int, seed: int) -> None:
    for held in (by_group(torch.tensor(group, dtype=torch.long), 5, clients), by_site(len(group), clients, seed)):
        assert len(held) == clients
        assert sorted(torch.cat(held).tolist()) == list(range(len(group)))


def test_by_group_no_client_mixes_groups_unless_it_must() -> None:
    group = torch.arange(100) % 5
    assert [set(group[rows].tolist()) for rows in by_group(group, 5, 5)] == [{k} for k in range(5)]
    more = by_group(group, 5, 12)
    assert all(len(set(group[rows].tolist())) == 1 for rows in more)
    assert {len(rows) for rows in more} == {6, 7, 10}
    assert [set(group[rows].tolist()) for rows in by_group(group, 5, 2)] == [{0, 2, 4}, {1, 3}]


def test_sites_are_even_and_depend_on_the_seed() -> None:
    held = by_site(103, 4, 0)
    assert sorted(map(len, held)) == [25, 26, 26, 26]
    assert not torch.equal(held[0], by_site(103, 4, 1)[0])


def mixture(group: torch.Tensor, held: list[torch.Tensor], groups: int) -> torch.Tensor:
    """How many records of each group each client holds: `[clients, groups]`."""
    return torch.stack([torch.bincount(group[rows], minlength=groups) for rows in held])


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 13), st.integers(0, 3), st.floats(1e-3, 1e6))
def test_sites_that_mix_groups_hold_every_record_once(group: list[int], clients: int, seed: int, alpha: float) -> None:
    held = by_mixture(torch.tensor(group, dtype=torch.long), 5, clients, alpha, seed)
    assert len(held) == clients
    assert sorted(torch.cat(held).tolist()) == list(range(len(group)))
    again = by_mixture(torch.tensor(group, dtype=torch.long), 5, clients, alpha, seed)
    assert all(torch.equal(a, b) for a, b in zip(held, again, strict=True))


@pytest.mark.parametrize("alpha", [0.5, 50.0])
def test_shares_of_sites_follow_the_dirichlet_distribution(alpha: float) -> None:
    """The oracle: mean 1/n and variance (n - 1) / (n^2 (n alpha + 1)) of a symmetric Dirichlet's shares."""
    clients, records, groups = 4, 1000, 400
    group = torch.arange(records * groups) % groups
    shares = mixture(group, by_mixture(group, groups, clients, alpha, 0), groups) / records
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert torch.allclose(shares.mean(1), torch.full((clients,), 1 / clients), atol=4 * (variance / groups) ** 0.5)
    assert shares.var(1).mean().item() == pytest.approx(variance, rel=0.2)


def test_a_large_concentration_gives_even_sites_and_a_small_one_skewed_ones() -> None:
    group = torch.arange(3000) % 3
    even = mixture(group, by_mixture(group, 3, 5, 1e9, 0), 3)
    assert set(even.flatten().tolist()) == {200}
    skewed = mixture(group, by_mixture(group, 3, 5, 0.001, 0), 3)
    assert (skewed.max(0).values > 950).all()
    assert (skewed == 0).any()


def test_sites_depend_on_the_seed_but_their_mixtures_not_on_the_part() -> None:
    group = torch.arange(3000) % 3
    held = by_mixture(group, 3, 5, 0.3, 0)
    assert not torch.equal(mixture(group, held, 3), mixture(group, by_mixture(group, 3, 5, 0.3, 1), 3))
    assert held[0].tolist() != list(range(len(held[0])))
    tenth = mixture(group[:300], by_mixture(group[:300], 3, 5, 0.3, 0), 3)
    assert (mixture(group, held, 3) / 10 - tenth).abs().max() <= 1
