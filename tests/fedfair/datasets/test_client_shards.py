"""The records that clients hold: views of records that are stored together, equal to separate records."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.datasets import GroupedDataset, Parts
from fedfair.datasets.grouped import PARTS
from fedfair.datasets.partition import Shares


def data(records: int, first: int) -> GroupedDataset:
    rows = torch.arange(first, first + records)
    return GroupedDataset(rows[:, None].double(), rows % 2, rows % 3, ("a", "b", "c"), 2, records=rows)


def own(part: GroupedDataset, holder: torch.Tensor, client: int) -> GroupedDataset:
    """Return a client's records, found by looking at every one: the oracle."""
    return part.take((holder == client).nonzero().flatten())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 9), st.data())
def test_clients_of_every_node_hold_what_was_dealt_to_them(held: list[int], nodes: int, draw: st.DataObject) -> None:
    node, clients = draw.draw(st.integers(0, nodes - 1)), 7
    holder, parts = torch.tensor(held, dtype=torch.long), Parts(data(len(held), 0), data(0, 50), data(4, 60))
    holders = {"train": holder, "valid": torch.empty(0, dtype=torch.long), "test": torch.tensor([6, 0, 6, 3])}
    shares = Shares.dealt(parts, holders, clients, node, nodes)
    assert list(shares) == shares.numbers.tolist() == list(range(node, clients, nodes))
    for client, mine in shares.items():
        for name, part in mine:
            expected = own(getattr(parts, name), holders[name], client)
            assert torch.equal(part.records, expected.records)
            assert torch.equal(part.x, expected.x)
            assert torch.equal(part.group, expected.group)
            assert shares.group_sizes(name)[list(shares).index(client)].tolist() == list(expected.group_sizes())
        rows = shares.rows(client)
        assert all(shares.holder(row) == client for row in range(rows.start, rows.stop))
        assert torch.equal(shares.training(client).records, mine.train.records)


def test_a_clients_records_are_a_view_and_no_copy() -> None:
    shares = Shares.dealt(Parts(data(9, 0), data(9, 9), data(9, 18)), {p: torch.arange(9) % 3 for p in PARTS}, 3)
    start, after = shares.together.train.x.data_ptr(), shares.together.train.x[3:].data_ptr()
    assert (shares[0].train.x.data_ptr(), shares[1].train.x.data_ptr()) == (start, after)


def test_clients_whose_records_lie_apart_are_put_together_in_their_order() -> None:
    apart = {5: Parts(data(2, 0), data(0, 9), data(1, 20)), 2: Parts(data(3, 30), data(1, 9), data(0, 20))}
    shares = Shares.joined(apart)
    assert list(shares) == [2, 5]
    assert shares.together.train.records.tolist() == [30, 31, 32, 0, 1]
    for client, parts in apart.items():
        for name, part in parts:
            assert torch.equal(getattr(shares[client], name).records, part.records)
    with pytest.raises(KeyError):
        shares.rows(3)
