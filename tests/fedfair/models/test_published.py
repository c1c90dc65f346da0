"""The published models."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from sklearn.metrics import log_loss

from fedfair.gradients.probe import per_example
from fedfair.models.find import build, find_model
from fedfair.models.published import loss
from tests.for_each import for_each


@for_each(("name", "shape", "classes", "parameters"), [
    ("lenet", (1, 28, 28), 10, 431_080),  # Xu et al. 2021: 431K
    ("mlp", (98,), 2, 91_650),  # Esipova et al. 2023, B.3: Adult
    ("logistic", (59,), 2, 120),  # the same: Dutch
    ("binary_logistic", (35,), 2, 35),
    ("binary_mlp", (98,), 2, 91_650 - 257),
    ("squashed_logistic", (59,), 2, 120),
    ("cnn", (3, 64, 64), 2, 120_722),  # the same: CelebA
    ("cnn", (1, 28, 28), 10, 320 + 4_624 + 92_170),  # the same network; the paper says 80,522 for MNIST
])
def test_parameter_counts(name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    model = build(name, (), shape, classes, 0, torch.float32)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(torch.zeros(3, *shape)).shape == (3, classes)


def test_pooling_before_relu_is_what_pooling_after_it_is() -> None:
    model = build("lenet", (), (1, 28, 28), 10, 0, torch.float64)
    assert isinstance(model, torch.nn.Sequential)
    published = torch.nn.Sequential(*(model[place] for place in (0, 2, 1, 3, 5, 4, 6, 7, 8, 9)))
    x = torch.randn(5, 1, 28, 28, dtype=torch.float64)
    outputs = [each(x) for each in (model, published)]
    gradients = [torch.autograd.grad(output.square().sum(), list(model.parameters())) for output in outputs]
    assert torch.equal(*outputs)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(*gradients, strict=True))


def test_one_score_gives_the_losses_of_scikit_learn_and_gradients_shorter_by_root_two() -> None:
    one = build("binary_logistic", (), (3,), 2, 0, torch.float64)
    two = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64)
    (weight,) = one.parameters()
    with torch.no_grad():
        two.weight.copy_(torch.cat([-weight / 2, weight / 2]))
    x, y = torch.randn(7, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    chances = torch.sigmoid(x @ weight.flatten()).tolist()
    assert loss(one(x), y).mean().item() == pytest.approx(log_loss(y.numpy(), chances))
    assert torch.allclose(loss(one(x), y), loss(two(x), y))
    norms = [per_example(model, loss, x, y).norms for model in (one, two)]
    assert torch.allclose(norms[0] * math.sqrt(2), norms[1])


def test_an_mlp_with_one_score_has_the_binary_cross_entropy_of_its_score() -> None:
    one = build("binary_mlp", (4,), (3,), 2, 0, torch.float64)
    x, y = torch.randn(7, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    score = one(x)[:, 1]
    assert one(x)[:, 0].tolist() == [0] * 7
    expected = torch.nn.functional.binary_cross_entropy_with_logits(score, y.double(), reduction="none")
    assert torch.allclose(loss(one(x), y), expected)


def test_behind_a_sigmoid_no_loss_is_below_that_of_the_scores_0_and_1() -> None:
    model = build("squashed_logistic", (), (3,), 2, 0, torch.float64)
    losses = loss(model(1e6 * torch.randn(50, 3, dtype=torch.float64)), torch.ones(50, dtype=torch.long))
    assert losses.min().item() == pytest.approx(math.log(1 + math.exp(-1)))
    assert losses.max().item() == pytest.approx(math.log(1 + math.exp(1)))


def test_parameters_depend_on_the_seed_alone_and_leave_the_global_generator() -> None:
    state = torch.get_rng_state()
    first, again, other = (build("mlp", (4,), (3,), 2, seed, torch.float64) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
    assert next(first.parameters()).dtype == torch.float64


@for_each(("name", "hidden", "shape", "message"), [
    ("cnn", (), (1, 4, 8), "at least 5 x 5 pixels"), ("lenet", (), (64,), "at least 16 x 16 pixels"),
    ("cnn", (3,), (1, 28, 28), "takes 2 widths"),
    ("binary_logistic", (3,), (5,), "no hidden layers"), ("logistic", (3,), (5,), "no hidden layers"),
    ("mpl", (), (5,), "did you mean 'mlp'")])
def test_what_does_not_fit_is_refused(name: str, hidden: tuple[int, ...], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, hidden, shape, 2, 0, torch.float32)


def test_one_score_is_for_two_classes() -> None:
    with pytest.raises(ValueError, match="model binary_mlp has two classes, but there are 3: take mlp"):
        build("binary_mlp", (), (5,), 3, 0, torch.float32)


OWN = """
from torch.nn import Flatten, Linear, Sequential

def helper(shape):
    return Flatten()

def two_layers(shape, hidden, classes):
    return Sequential(helper(shape), Linear(shape[0], hidden[0]), Linear(hidden[0], classes))
"""


def test_a_model_of_the_users_is_a_function_in_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                 ) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "two_layers.py").write_text(OWN)
    for name in ("two-layers", "two_layers"):
        shapes = [tuple(p.shape) for p in build(name, (5,), (3,), 2, 0, torch.float64).parameters()]
        assert shapes == [(5, 3), (5,), (2, 5), (2,)]
    (tmp_path / "models" / "other.py").write_text(OWN)
    with pytest.raises(ValueError, match=r"models/other\.py does not define other: it must define a function"):
        find_model("other")


@pytest.mark.parametrize("name", ["two-layers", "../two-layers", "/two_layers", "deeper/two_layers", ""])
def test_no_file_elsewhere_is_run_for_a_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client is told the name by the server."""
    (tmp_path / "models" / "deeper").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "models" / "deeper"):
        (folder / "two_layers.py").write_text("raise AssertionError('this was run')")
    with pytest.raises(ValueError, match=f"unknown model '{name}': .*, or a file .* in the folder models"):
        find_model(name)


def test_the_loss_is_cross_entropy_by_example() -> None:
    output, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    expected = [-float(output[i].log_softmax(0)[y[i]]) for i in range(5)]
    assert loss(output, y).tolist() == pytest.approx(expected)
