"""The weights that all releases tell: held against slow oracles, and nearer to the true ones than the last step's."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Bounding, Encoding, Feature
from fedfair.mechanisms.randomness import generator
from fedfair.moments.filled_bins import Denoised, filled
from fedfair.moments.logistic import Course, start, stepped
from fedfair.moments.posterior import Part, Posterior, _of_numbers, drawn_together, posterior
from fedfair.moments.release import Moments
from fedfair.moments.sums import mixed, moment_sums, unmixed, unsvec
from fedfair.moments.told import Axes, Told

COLUMNS, BINS, RECORDS = 6, 8, 6_000
ENDS = [None, *range(1, BINS), None]
ENCODING = Encoding(tuple(Feature(f"c{column}", bin=(ENDS[place], ENDS[place + 1]))
                          for column in range(COLUMNS) for place in range(BINS)),
                    bounding=Bounding(math.sqrt(COLUMNS), 1.0))


def told(noise: float, width: int = 7, seed: int = 0) -> tuple[Told, list[Part]]:
    """Draw what releases might tell of weights with two parts and a constant."""
    draws = generator(seed, "told")
    root = torch.randn(width, width, generator=draws, dtype=torch.float64)
    second, line = 9 * root @ root.T, torch.zeros(width, 1, dtype=torch.float64)
    line[:4, 0] = torch.tensor([-1.5, -0.5, 0.5, 1.5])
    others, constant = torch.zeros(width, 2, dtype=torch.float64), torch.zeros(width, 1, dtype=torch.float64)
    others[4, 0] = others[5, 1] = constant[-1] = 1.0
    weights = (2 * line + others @ torch.tensor([[1.0], [-1.0]], dtype=torch.float64) + 3 * constant)[:, 0]
    sums = second @ weights + noise * torch.randn(width, generator=draws, dtype=torch.float64)
    nothing = torch.zeros(0, 0, dtype=torch.float64)
    return (Told(Denoised(second, nothing, nothing, nothing), Axes.of(second), sums, noise, 0.2, nothing, nothing),
            [Part("line", line), Part("category", others), Part("constant", constant)])


def likelihood(of: Told, prior: list[Part], scales: Tensor) -> float:
    """Return the logarithm of how likely the sums are, by the plain formula of a normal distribution."""
    covariance = of.exact.second / of.slope + of.noise**2 * torch.eye(len(of.sums), dtype=torch.float64)
    for part, scale in zip(prior, scales, strict=True):
        seen = of.exact.second @ part.root
        covariance = covariance + scale * seen @ seen.T
    return float(torch.distributions.MultivariateNormal(torch.zeros_like(of.sums), covariance).log_prob(of.sums))


def oracle(of: Told, prior: list[Part], scales: Tensor) -> Tensor:
    """Return the mean of weights given the sums, by the plain formula of normal distributions."""
    likely = sum((scale * part.root @ part.root.T for part, scale in zip(prior, scales, strict=True)),
                 torch.zeros_like(of.exact.second))
    covariance = of.exact.second @ likely @ of.exact.second + of.exact.second / of.slope + of.noise**2 * torch.eye(
        len(of.sums), dtype=torch.float64)
    return likely @ of.exact.second @ torch.linalg.solve(covariance, of.sums)


@pytest.mark.parametrize("noise", [0.5, 5.0, 30.0])
def test_weights_are_the_mean_given_what_is_told_with_scales_that_nothing_near_is_likelier_than(
        noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfair.moments.posterior._SETTLED", 1e-9)
    monkeypatch.setattr("fedfair.moments.posterior._TURNS", 20_000)
    monkeypatch.setattr("fedfair.moments.posterior._DRAWN", 0.0)
    of, prior = told(noise)
    found = drawn_together(of, prior, FIRST)
    grid = torch.logspace(-3, 3, 61, dtype=torch.float64)
    scales = torch.tensor([1.0, 1.0, 1e6], dtype=torch.float64)
    for _ in range(12):
        for place in range(2):
            tried = [likelihood(of, prior, torch.where(torch.arange(3) == place, value, scales)) for value in grid]
            scales[place] = grid[int(torch.tensor(tried).argmax())]
    assert torch.allclose(found.weights, oracle(of, prior, scales), rtol=0.02, atol=0.02)


def test_without_noise_the_weights_are_those_that_the_sums_tell() -> None:
    of, prior = told(0.0)
    exact = torch.linalg.solve(of.exact.second, of.sums)
    assert torch.allclose(drawn_together(of._replace(slope=1e9), prior, FIRST).weights, exact, rtol=1e-4, atol=1e-4)


def test_a_line_and_what_bends_have_mean_nothing_and_variance_one() -> None:
    shares = torch.tensor([0.1, 0.3, 0.4, 0.2], dtype=torch.float64)
    for root in _of_numbers(shares):
        assert torch.allclose(shares @ root, torch.zeros(root.shape[1], dtype=torch.float64), atol=1e-7)
        assert float(shares @ root.square().sum(1)) == pytest.approx(1.0)


def test_a_line_rises_with_the_normal_scores_of_the_bins() -> None:
    line = _of_numbers(torch.tensor([0.1, 0.3, 0.4, 0.2], dtype=torch.float64))[0][:, 0]
    scores = [NormalDist().inv_cdf(place) for place in (0.05, 0.25, 0.6, 0.9)]
    assert (line.diff() / line.diff()[0]).tolist() == pytest.approx(
        [(high - low) / (scores[1] - scores[0]) for low, high in pairwise(scores)])


def trained(effect: Tensor, noise: float, seed: int, clip: float = 1.0) -> tuple[Course, Posterior, Tensor]:
    """Fit to records of binned numbers whose bins have effects `[COLUMNS, BINS]`; return true weights too, `[d]`."""
    draws = generator(seed, "records")
    codes = torch.randint(BINS, (RECORDS, COLUMNS), generator=draws)
    x = torch.nn.functional.one_hot(codes, BINS).flatten(1).double()
    y = (torch.rand(RECORDS, generator=draws, dtype=torch.float64) < torch.sigmoid(x @ effect.flatten())).long()
    assert ENCODING.bounding is not None
    phi, group = ENCODING.bounding.of(x), torch.zeros(RECORDS, dtype=torch.long)
    exact = moment_sums(phi, y, group, 1, 2, by_group=False)

    def noisy(sums: Tensor, times: float = 1.0) -> Tensor:
        """Add noise."""
        return sums + times * noise * torch.randn(sums.shape, generator=draws, dtype=torch.float64)

    moments = Moments(unsvec(noisy(exact["second"])), unmixed(noisy(mixed(exact["first"]))), noise,
                      ENCODING.bounding.last, mixing=True)
    bins = filled(moments, ENCODING)
    assert len(bins.kept) == COLUMNS * BINS + 1
    head, path = start(moments.pooled()), []
    for number in (1, 2, 3):
        path.append(head.weights[:, 1] - head.weights[:, 0])
        wrong = torch.softmax(phi @ head.weights, 1) - torch.nn.functional.one_hot(y, 2)
        head = stepped(head, noisy(phi.T @ wrong.clamp(-clip, clip), clip), moments.pooled(), number)
    course = Course(moments.pooled(), 1.0, torch.stack([*path, head.weights[:, 1] - head.weights[:, 0]]),
                    (clip * noise,) * 3, clip)
    true = torch.cat([effect.flatten() * math.sqrt(COLUMNS), torch.zeros(1, dtype=torch.float64)])
    return course, posterior(course, moments, bins, ENCODING), true


def off(weights: Tensor, true: Tensor) -> float:
    """Return by how much scores are off, as a mean square over records of all bins alike, the constant apart."""
    apart = (weights - true)[:-1].view(COLUMNS, BINS)
    return float((apart - apart.mean(1, keepdim=True)).square().mean())


FIRST = torch.tensor([1.0, 1.0, 1e6], dtype=torch.float64)
LINE = torch.linspace(-1, 1, BINS, dtype=torch.float64) * torch.tensor([1.0, -1, 0.5, 0.5, 0, 0])[:, None]
JUMP = (torch.arange(BINS) >= 5).double() * torch.tensor([2.0, -1, 1, -2, 0, 0])[:, None]
NOTHING = torch.zeros(COLUMNS, BINS, dtype=torch.float64)


@pytest.mark.parametrize("clip", [1.0, 0.5])
@pytest.mark.parametrize(("effect", "most"), [(LINE, 0.35), (JUMP, 0.8), (NOTHING, 0.2)])
def test_weights_are_nearer_to_the_true_ones_than_those_of_the_last_step(effect: Tensor, most: float, clip: float
                                                                         ) -> None:
    """By this part of the squared error at most, over four fits."""
    last, together = [], []
    for seed in range(4):
        course, found, true = trained(effect, 6.0, seed, clip)
        last.append(off(course.path[-1], true))
        together.append(off(found.weights, true))
    assert sum(together) < most * sum(last)


def test_noise_is_as_large_as_is_said() -> None:
    """Of what is told, beside the true sums: what drawing the records adds is small here."""
    for clip in (1.0, 0.5):
        ratios = []
        for seed in range(6):
            _, found, true = trained(LINE, 12.0, seed, clip)
            away = found.told.sums - found.told.exact.second @ true
            expected = found.told.noise**2 * len(true) + float(found.told.exact.second.trace()) / found.told.slope
            ratios.append(float(away.square().sum()) / expected)
        assert 0.6 < sum(ratios) / len(ratios) < 1.5


def test_where_one_bin_has_most_of_a_rare_class_the_constant_brings_its_probability_nearer() -> None:
    effect = torch.zeros(COLUMNS, BINS, dtype=torch.float64)
    effect[0, -1], effect[1] = 4.0, -5.0
    chance, away = torch.sigmoid(effect[0] - 5).mean(), []
    for seed in range(6):
        _, found, _ = trained(effect, 3.0, seed)
        assert ENCODING.bounding is not None
        codes = torch.randint(BINS, (RECORDS, COLUMNS), generator=generator(seed, "others"))
        phi = ENCODING.bounding.of(torch.nn.functional.one_hot(codes, BINS).flatten(1).double())
        away.append([float((torch.sigmoid(phi @ weights).mean() - chance).abs())
                     for weights in (found.mean, found.weights)])
    before, after = torch.tensor(away).mean(0).tolist()
    assert after < 0.6 * before
