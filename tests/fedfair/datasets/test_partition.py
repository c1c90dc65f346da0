"""Every record is held exactly once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.datasets.partition import by_group, by_mixture, by_site


def rows_of(holder: torch.Tensor, clients: int) -> list[torch.Tensor]:
    return [(holder == client).nonzero().flatten() for client in range(clients)]


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 13), st.integers(0, 3))
def test_every_record_has_one_holder(group: list[int], clients: int, seed: int) -> None:
    for holder in (by_group(torch.tensor(group, dtype=torch.long), 5, clients), by_site(len(group), clients, seed)):
        assert len(holder) == len(group)
        assert set(holder.tolist()) <= set(range(clients))


def test_by_group_no_client_mixes_groups_unless_it_must() -> None:
    group = torch.arange(100) % 5
    assert [set(group[rows].tolist()) for rows in rows_of(by_group(group, 5, 5), 5)] == [{k} for k in range(5)]
    more = rows_of(by_group(group, 5, 12), 12)
    assert all(len(set(group[rows].tolist())) == 1 for rows in more)
    assert {len(rows) for rows in more} == {6, 7, 10}
    assert [set(group[rows].tolist()) for rows in rows_of(by_group(group, 5, 2), 2)] == [{0, 2, 4}, {1, 3}]


def test_sites_are_even_and_depend_on_the_seed() -> None:
    holder = by_site(103, 4, 0)
    assert sorted(torch.bincount(holder).tolist()) == [25, 26, 26, 26]
    assert not torch.equal(holder, by_site(103, 4, 1))


def mixture(group: torch.Tensor, holder: torch.Tensor, clients: int, groups: int) -> torch.Tensor:
    """How many records of each group each client holds: `[clients, groups]`."""
    return torch.stack([torch.bincount(group[rows], minlength=groups) for rows in rows_of(holder, clients)])


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 13), st.integers(0, 3), st.floats(1e-3, 1e6))
def test_sites_that_mix_groups_hold_every_record_once(group: list[int], clients: int, seed: int, alpha: float) -> None:
    holder = by_mixture(torch.tensor(group, dtype=torch.long), 5, clients, alpha, seed)
    assert len(holder) == len(group)
    assert set(holder.tolist()) <= set(range(clients))
    assert torch.equal(holder, by_mixture(torch.tensor(group, dtype=torch.long), 5, clients, alpha, seed))


@pytest.mark.parametrize("alpha", [0.5, 50.0])
def test_shares_of_sites_follow_the_dirichlet_distribution(alpha: float) -> None:
    """The oracle: mean 1/n and variance (n - 1) / (n^2 (n alpha + 1)) of a symmetric Dirichlet's shares."""
    clients, records, groups = 4, 1000, 200
    group = torch.arange(records * groups) % groups
    shares = mixture(group, by_mixture(group, groups, clients, alpha, 0), clients, groups) / records
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert torch.allclose(shares.mean(1), torch.full((clients,), 1 / clients), atol=4 * (variance / groups) ** 0.5)
    assert shares.var(1).mean().item() == pytest.approx(variance, rel=0.2)


def test_a_large_concentration_gives_even_sites_and_a_small_one_skewed_ones() -> None:
    group = torch.arange(3000) % 3
    even = mixture(group, by_mixture(group, 3, 5, 1e9, 0), 5, 3)
    assert set(even.flatten().tolist()) == {200}
    skewed = mixture(group, by_mixture(group, 3, 5, 0.001, 0), 5, 3)
    assert (skewed.max(0).values > 950).all()
    assert (skewed == 0).any()


def test_sites_depend_on_the_seed_but_their_mixtures_not_on_the_part() -> None:
    group = torch.arange(3000) % 3
    holder = by_mixture(group, 3, 5, 0.3, 0)
    assert not torch.equal(mixture(group, holder, 5, 3), mixture(group, by_mixture(group, 3, 5, 0.3, 1), 5, 3))
    first = rows_of(holder, 5)[0]
    assert first.tolist() != list(range(len(first)))
    tenth = mixture(group[:300], by_mixture(group[:300], 3, 5, 0.3, 0), 5, 3)
    assert (mixture(group, holder, 5, 3) / 10 - tenth).abs().max() <= 1
