"""Every record is held exactly once."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfair.partition import by_group, by_site


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
