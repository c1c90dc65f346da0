"""Training many participants as one tensor program equals training them one by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.datasets.partition import Shares
from fedfair.mechanisms.randomness import generator
from fedfair.models.find import build
from fedfair.node import vectorised_training as cohort
from fedfair.node.vectorised_training import local_updates
from fedfair.protocol.round import LocalSgd

SHAPES = {"mlp": (4,), "logistic": (4,), "next_word": (3,), "lenet": (1, 16, 16)}
HIDDEN = {"mlp": (3,), "logistic": (), "next_word": (2, 3), "lenet": (2, 3, 4)}
CLASSES = 5


def data(model: str, records: int, seed: int) -> GroupedDataset:
    draws, shape = generator(seed, "test"), (records, *SHAPES[model])
    x = torch.randn(shape, generator=draws, dtype=torch.float64)
    if model == "next_word":
        x = torch.randint(CLASSES + 2, shape, generator=draws)
    y = torch.randint(CLASSES, (records,), generator=draws)
    return GroupedDataset(x, y, torch.zeros(records).long(), ("everybody",), CLASSES)


def one_by_one(name: str, own: GroupedDataset, local: LocalSgd, client: int, round_: int) -> dict[str, torch.Tensor]:
    """Compute one participant's update, with PyTorch's own SGD."""
    model = build(name, HIDDEN[name], SHAPES[name], CLASSES, 0, torch.float64)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=local.learning_rate, weight_decay=local.weight_decay)
    draws = generator(9, "local order", client, round_)
    for _ in range(local.epochs):
        order = torch.randperm(len(own), generator=draws)
        for start in range(0, len(own), local.batch_size):
            rows = order[start : start + local.batch_size]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(own.x[rows]), own.y[rows]).backward()
            optimizer.step()
    return {key: before[key] - p.detach() for key, p in model.named_parameters()}


def together(name: str, clients: dict[int, GroupedDataset], local: LocalSgd, round_: int
             ) -> dict[int, dict[str, torch.Tensor]]:
    model = build(name, HIDDEN[name], SHAPES[name], CLASSES, 0, torch.float64)
    start = {key: p.detach().clone() for key, p in model.named_parameters()}
    shares = Shares.joined({client: Parts(own, own, own) for client, own in clients.items()})
    return {client: {key: value[place] for key, value in updates.values.items()}
            for updates in local_updates(model, start, shares, list(clients), local, round_)
            for place, client in enumerate(updates.clients)}


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(SHAPES)), st.lists(st.integers(0, 11), min_size=1, max_size=5), st.integers(1, 3),
       st.integers(1, 6), st.sampled_from([0.0, 0.1]))
def test_updates_equal_those_one_by_one(name: str, sizes: list[int], epochs: int, batch: int, decay: float) -> None:
    local = LocalSgd(epochs=epochs, batch_size=batch, learning_rate=0.4, weight_decay=decay, seed=9)
    clients = {3 * number + 1: data(name, size, number) for number, size in enumerate(sizes)}
    found = together(name, clients, local, round_=2)
    assert sorted(found) == sorted(clients)
    for client, own in clients.items():
        for key, value in one_by_one(name, own, local, client, 2).items():
            assert torch.allclose(found[client][key], value, rtol=0, atol=1e-12), (client, key)


def test_turns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalSgd(epochs=2, batch_size=4, learning_rate=0.4, weight_decay=0.0, seed=9)
    clients = {n: data("mlp", 3 * n, n) for n in range(6)}
    at_once = together("mlp", clients, local, 0)
    monkeypatch.setattr(cohort, "_NUMBERS", 80)  # two participants of 35 numbers
    in_turns = together("mlp", clients, local, 0)
    assert set(in_turns) == set(at_once) == set(clients)
    for client in clients:
        assert all(torch.allclose(in_turns[client][k], v, rtol=0, atol=1e-12) for k, v in at_once[client].items())


def test_another_round_is_another_order() -> None:
    local = LocalSgd(epochs=1, batch_size=2, learning_rate=0.4, weight_decay=0.0, seed=9)
    clients = {0: data("mlp", 9, 0)}
    first, again, next_one = (together("mlp", clients, local, round_)[0]["1.weight"] for round_ in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, next_one)
