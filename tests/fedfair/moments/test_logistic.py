"""Logistic steps: without noise they end at logistic regression, and a step can be read backwards."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from fedfair.moments import sums
from fedfair.moments.heads import Head, least_squares
from fedfair.moments.logistic import apart, gradient_of_step, start, stepped
from fedfair.moments.release import Moments, Pooled
from tests.fedfair.moments.test_heads import drawn, exact


def gradient(head: Head, x: Tensor, y: Tensor) -> Tensor:
    """Return the sum of the gradients of the cross entropy, `[d, 2]`, one record after the other."""
    weights = head.weights.clone().requires_grad_()
    for phi, label in zip(x, y, strict=True):
        (torch.logsumexp(phi @ weights, 0) - (phi @ weights)[label]).backward()  # type: ignore[no-untyped-call]
    assert weights.grad is not None
    return weights.grad


def rare(n: int = 2000) -> tuple[Tensor, Tensor, Pooled]:
    """Draw records of which few are of class 1, with their moments."""
    x, y, group = drawn(n)
    keep = (y == 0) | (torch.arange(n) % 6 == 0)
    return x[keep], y[keep], exact(x[keep], y[keep], group[keep], 2, 2).pooled()


def test_without_noise_the_steps_end_at_logistic_regression() -> None:
    x, y, moments = rare()
    head = start(moments)
    for number in range(1, 400):
        scores = x @ head.weights
        errors = torch.softmax(scores, 1) - torch.nn.functional.one_hot(y, 2)
        head = stepped(head, x.T @ errors, moments, number)
    usual = LogisticRegression(penalty=None, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x.numpy(), y.numpy())
    least = torch.nn.functional.binary_cross_entropy_with_logits(torch.from_numpy(usual.decision_function(x.numpy())),
                                                                 y.double())
    assert float(least) <= loss(head, x, y) <= float(least) + 1e-5
    assert torch.allclose(x @ (head.weights[:, 1] - head.weights[:, 0]), torch.from_numpy(
        usual.decision_function(x.numpy())), rtol=0, atol=0.05)


def test_noise_of_the_steps_averages_out() -> None:
    """Of J = 3 steps 2/(j+1) noise counts with weights 1/6, 2/6, 3/6: its variance is 14/36 of that of one step."""
    _, _, moments = rare()
    drawn = torch.Generator().manual_seed(0)
    ends = []
    for _ in range(400):
        head = start(moments)
        for number in (1, 2, 3):
            noise = 1e-3 * torch.randn(head.weights.shape, generator=drawn, dtype=torch.float64)
            quadratic = moments.second @ (head.weights - least_squares(moments).weights) / 4  # of two scores, 2 h S
            head = stepped(head, quadratic + noise, moments, number)
        ends.append(head.inverse.inverse() @ (head.weights - least_squares(moments).weights)[:, 1] / 4)
    spread = torch.stack(ends).std(0) / (1e-3 / 2**0.5)
    assert torch.allclose(spread, torch.full_like(spread, (14 / 36) ** 0.5), rtol=0.15)
    assert torch.stack(ends).mean(0).abs().max() < 1e-3 / 10


def test_two_steps_are_nearer_to_logistic_regression_than_least_squares() -> None:
    x, y, moments = rare()
    head = start(moments)
    losses = [loss(least_squares(moments), x, y)]
    for number in (1, 2, 3):
        losses.append(loss(head, x, y))
        head = stepped(head, gradient(head, x, y), moments, number)
    assert losses == sorted(losses, reverse=True)


def loss(head: Head, x: Tensor, y: Tensor) -> float:
    """Return the mean cross entropy."""
    return float(torch.nn.functional.cross_entropy(x @ head.weights, y))


@pytest.mark.parametrize(("rare", "usual", "share"), [(0.1, 0.999, 0.4), (0.02, 1.0, 0.3), (0.01, 1.0, 0.45)])
def test_steps_settle_where_nearly_all_records_are_certain(rare: float, usual: float, share: float) -> None:
    """A cell of few records whose classes are mixed, among many of one class: each step lowers the loss."""
    n, few = 10_000, round(10_000 * rare)
    x = torch.zeros(n, 3, dtype=torch.float64)
    x[:few, 1], x[few:, 0], x[:, 2] = 0.8, 0.8, 0.6
    y = torch.cat([torch.arange(few) < share * few, torch.arange(n - few) < usual * (n - few)]).long()
    made = sums.moment_sums(x, y, torch.zeros(n, dtype=torch.long), 1, 2, False)
    moments = Moments(sums.unsvec(made["second"]), made["first"], 0.0, 0.6).pooled()
    head = start(moments)
    losses = []
    for number in range(1, 51):
        losses.append(loss(head, x, y))
        errors = torch.softmax(x @ head.weights, 1) - torch.nn.functional.one_hot(y, 2)
        head = stepped(head, x.T @ errors, moments, number)
    assert losses == sorted(losses, reverse=True)


def test_no_gradient_of_a_record_is_longer_than_the_root_of_two() -> None:
    """Which is what the round's rule allows: it is reached by a record whose class the model rules out."""
    x, y = torch.eye(3, dtype=torch.float64)[:1], torch.tensor([0])
    for size in (0.0, 1.0, 100.0):
        weights = size * torch.tensor([[-1.0, 1.0]] * 3, dtype=torch.float64)
        norm = float(gradient(Head(weights, torch.eye(3)), x, y).norm())
        assert norm <= 2**0.5 + 1e-12
    assert norm == pytest.approx(2**0.5)


def test_a_step_tells_its_gradient_and_ignores_what_both_classes_share() -> None:
    x, y, moments = rare()
    head, common = start(moments), torch.ones(x.shape[1], 1, dtype=torch.float64)
    own = gradient(head, x, y)
    after = stepped(head, own + common, moments, 2)
    assert torch.allclose(after.weights, stepped(head, own, moments, 2).weights, rtol=0, atol=1e-9)
    assert torch.allclose(gradient_of_step(head, after, moments, 2), apart(own), rtol=1e-6, atol=1e-8)


def test_more_than_two_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 3 classes"):
        start(exact(*drawn(classes=3), 3, 2).pooled())
