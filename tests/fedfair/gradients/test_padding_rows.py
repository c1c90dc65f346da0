"""Rows of embeddings at `padding_idx`: no noise moves them, in whatever way a run trains, and no record can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedfair.gradients.layer_probe import padding_rows, without_rows
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node import node
from fedfair.node.private_training import train_privately
from fedfair.protocol.round import LocalTraining, Round
from simulations import Experiment, run
from strategies.server import method
from tests.strategies.two_groups import two_groups

MODEL = """
from torch import nn


class Words(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.words, self.last = nn.Embedding(4, width, padding_idx=2), nn.Linear(width, classes)

    def forward(self, x):
        return self.last(self.words(1 + (x > 0).long() + (x > 1).long()).sum(1))


def padded(shape, hidden, classes):
    return Words(3, classes)
"""


@pytest.fixture
def padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Provide settings of a run with a model of the user's own whose word 2 fills texts up."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "padded.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return {**two_groups(), "model": "padded", "strategy": "dpsgd", "steps": 2, "batch_size": 32, "delta": 1e-5,
            "noise_multiplier": 5.0, "learning_rate": 0.5}


WAYS: tuple[dict[str, Any], ...] = (
    {"sync": "step"}, {"sync": "epoch"}, {"trust": "local"}, {"optimizer": "adam"}, {"optimizer": "rmsprop"},
    {"noise": "discrete", "dtype": "float64"}, {"strategy": "dpsgd-f"}, {"strategy": "dpsgd-f", "sync": "epoch"},
    {"strategy": "dp-fedavg", "partition": "site", "clients": 20, "batch_size": 10}, {"weight_decay": 0.1},
    {"average": 0.9})


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(f"{name}={value}" for name, value in way.items()))
def test_the_row_stays_as_it_is(padded: dict[str, Any], way: dict[str, Any]) -> None:
    experiment = Experiment(**{**padded, **way})
    before, after = experiment.task.build_model().state_dict(), run(experiment).model.state_dict()
    assert torch.equal(after["words.weight"][2], before["words.weight"][2])
    assert not after["words.weight"][2].any()
    assert bool((after["words.weight"][:2] != before["words.weight"][:2]).all())  # also of word 0, which nobody has


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_all_else_is_the_same_to_the_bit(padded: dict[str, Any], sync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step, since an output depends on the row afterwards."""
    experiment = Experiment(**{**padded, "sync": sync, "steps": 1, "batch_size": 140 if sync == "epoch" else 32})
    kept = run(experiment).model.state_dict()
    for module in (node, method):
        monkeypatch.setattr(module, "without_rows", lambda sums, rows: dict(sums))
    moved = run(experiment).model.state_dict()
    assert moved["words.weight"][2].any()
    others = [0, 1, 3]
    assert torch.equal(moved.pop("words.weight")[others], kept.pop("words.weight")[others])
    assert all(torch.equal(moved[name], value) for name, value in kept.items())


class Shared(nn.Module):
    """Scores words by the embedding itself, which PyTorch trains as a whole; `registered` says so to everybody."""

    def __init__(self, registered: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3, padding_idx=1)
        if registered:
            self.last = nn.Linear(3, 5, bias=False)
            self.last.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        """Return a score for each word."""
        return F.linear(self.words(x).sum(1), self.words.weight)


def trained(model: nn.Module, y: Tensor) -> Tensor:
    """Return the weights of the words after a private epoch on some texts."""
    torch.manual_seed(0)
    x = torch.randint(2, 5, (len(y), 4))
    local = LocalTraining(batch_size=8, optimizer="sgd", learning_rate=0.1, weight_decay=0.0, momentum=0.0,
                          noise_multipliers=(1.0,), weights=(1.0,), sizes=(0,))
    plan = Round(key=None, step=0, rates=(1.0,), noise_multiplier=1.0, trust=Trust.LOCAL, clients=1, rule=Flat(1.0),
                 local=local)
    train_privately(model, x, y, torch.zeros(len(y)), plan.to_json())
    return next(model.parameters()).detach()


def test_a_row_that_the_models_own_code_uses_tells_nothing_of_the_records() -> None:
    """It is the same number for all records: were its gradient kept without noise, it would tell them."""
    for words in (1, 3):
        model = Shared(registered=False)
        assert torch.equal(trained(model, torch.full((16,), words))[1], torch.zeros(3))


def test_a_weight_that_two_layers_share_is_trained_as_a_whole() -> None:
    model = Shared(registered=True)
    assert padding_rows(model) == {}
    assert bool(trained(model, torch.full((16,), 1))[1].any())


@pytest.mark.parametrize(("model", "rows"), [
    (lambda: nn.Sequential(nn.Embedding(5, 2), nn.Linear(2, 2)), {}),
    (lambda: nn.Sequential(nn.Embedding(5, 2, padding_idx=-1), nn.Linear(2, 2)), {"0.weight": 4}),
    (lambda: nn.ModuleDict({"bag": nn.EmbeddingBag(5, 2, padding_idx=0), "last": nn.Linear(2, 2)}), {"bag.weight": 0}),
    (lambda: nn.Sequential(nn.Embedding(5, 2, padding_idx=0).requires_grad_(False), nn.Linear(2, 2)), {})])
def test_rows_follow_from_the_model_alone(model: Any, rows: dict[str, int]) -> None:
    assert padding_rows(model()) == rows


def test_one_weight_with_two_padding_words_is_trained_as_a_whole() -> None:
    first, second = nn.Embedding(5, 2, padding_idx=0), nn.Embedding(5, 2, padding_idx=1)
    second.weight = first.weight
    assert padding_rows(nn.ModuleList([first, second])) == {}
    second.padding_idx = 0
    assert padding_rows(nn.ModuleList([first, second])) == {"0.weight": 0}


def test_the_sums_themselves_stay_as_they_are() -> None:
    sums = {"words": torch.ones(3, 2), "last": torch.ones(2)}
    left = without_rows(sums, {"words": 1})
    assert left["words"].tolist() == [[1, 1], [0, 0], [1, 1]]
    assert left["last"] is sums["last"]
    assert bool((sums["words"] == 1).all())
