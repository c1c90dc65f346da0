"""What all releases of a logistic regression tell of its weights b: y = S b + noise.

Where labels follow b and scores are about normal, the gradient at any weights w is by Stein's lemma

    g = sum_i phi_i (p_i - y_i) = a S w - h S b + c t + noise

with a the mean of p (1 - p) at w, h that at b, t the sum of all features, and c the mean of p - y less what the means
of scores add to the others (Stein 1981; Brillinger 1982). At w = 0, -g is half the contrast of the two classes' sums.
Where gradients of records are clipped, a counts those that are not, and h each by what is left of its errors; b is
still that of unclipped logistic regression. S is taken from `fedfair.moments.filled_bins`, and what it is off adds to
the noise. Scores are not quite normal: a share of what lies between w and b, S (a w - h b), is taken for noise too, as
large as makes the releases differ by no more than they should, and never less than .03. By inverse variances they tell
y = S b + noise of one size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.moments.filled_bins import Denoised
from fedfair.moments.heads import Spectrum
from fedfair.moments.logistic import DENSITY, Course, Scores
from fedfair.moments.release import Moments

_HALVINGS = 30
_CURVED = 0.03  # least share of what lies between a gradient's weights and b that is noise
_FLATTEST, _EXACT = 1e-3, 1e-6  # least slope and deviation that are counted with


class Axes(NamedTuple):
    """Eigenvectors of S, and its eigenvalues, those below 0 as 0.

    Attributes:
        values: Eigenvalues, `[k]`.
        vectors: A column for each, `[k, k]`.
    """

    values: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, second: Tensor) -> Axes:
        """Return those of S, `[k, k]`."""
        values, vectors = torch.linalg.eigh(second)
        return cls(values.clamp(min=0.0), vectors)


class Told(NamedTuple):
    """What the releases tell of the weights b of a difference of scores: y = S b + noise.

    Attributes:
        exact: S, without most of its noise and without negative eigenvalues.
        axes: Its eigenvectors and eigenvalues.
        sums: y, `[k]`.
        noise: Standard deviation of the noise on each number of it.
        slope: The mean of p (1 - p), h.
        at: Weights that the gradients were taken at, `[gradients, k]`; the first, the contrast, at 0.
        lines: For each gradient g at w by how much y holds a S w + c t - g, and a and c, `[gradients, 3]`.
    """

    exact: Denoised
    axes: Axes
    sums: Tensor
    noise: float
    slope: float
    at: Tensor
    lines: Tensor


class _Gradient(NamedTuple):
    """A released gradient.

    Attributes:
        at: Weights of the difference of scores that it was taken at, `[k]`.
        value: Noisy sum over records of phi (p - y), clipped, `[k]`.
        noise: Standard deviation of the noise on each number of it.
        clip: Clip norm of a record's gradient.
    """

    at: Tensor
    value: Tensor
    noise: float
    clip: float


def told_by(course: Course, moments: Moments, exact: Denoised, axes: Axes, weights: Tensor) -> Told:
    """Return what the releases tell.

    Args:
        course: The logistic regression, as it was trained.
        moments: What was released before it, of the k features that are fitted to.
        exact: S, without most of its noise and without negative eigenvalues.
        axes: Its eigenvectors and eigenvalues.
        weights: Weights of the difference of scores that slopes are taken at, `[k]`.
    """
    second, last, gradients = exact.second, moments.last, [*_gradients(course, moments)]
    at, values = torch.stack([one.at for one in gradients]), torch.stack([one.value for one in gradients])
    noises = torch.tensor([one.noise for one in gradients], dtype=torch.float64).clamp(min=_EXACT)
    steep, flat, offset = torch.tensor([_slopes(one, weights, second, last) for one in gradients],
                                       dtype=torch.float64).T
    seen = steep[:, None] * at @ second + torch.outer(offset, second[-1] / last) - values
    way = steep[:, None] * at - flat[:, None] * weights
    shares, noise = _Observed(seen, flat, noises**2 + ((way @ exact.off) * way).sum(1),
                              (way @ second).square().mean(1)).agreed()
    return Told(exact, axes, shares @ seen, noise, float(flat[0]), at, torch.stack([shares, steep, offset], 1))


def _gradients(course: Course, moments: Moments) -> Iterator[_Gradient]:
    """Yield the gradient at weights of 0, which the contrast of classes is, and that of each step."""
    contrast = course.moments.first[:, 1] - course.moments.first[:, 0]
    yield _Gradient(torch.zeros_like(contrast), -contrast / 2, moments.noise_of_contrast / 2, 1.0)
    spectrum = Spectrum.of(course.moments, course.floor)
    raised = (spectrum.vectors / spectrum.inverted) @ spectrum.vectors.T
    for before, after, factor, noise in zip(course.path, course.path[1:], course.factors, course.noises, strict=False):
        yield _Gradient(before, raised @ (before - after) / (2 * factor), noise / math.sqrt(2), course.clip)


def _slopes(gradient: _Gradient, weights: Tensor, second: Tensor, last: float) -> tuple[float, float, float]:
    """Return a, h and c of a gradient, where labels follow some weights and scores are normal, as S tells them."""
    at, true = (Scores.of(each, second, last) for each in (gradient.at, weights))
    p, label = torch.sigmoid(at.places), torch.sigmoid(true.places)
    high, low = p.clamp(max=gradient.clip), (1 - p).clamp(max=gradient.clip)  # what is left of p - y for a 0 and a 1
    steep = float(DENSITY @ (p * (1 - p) * ((1 - label) * (p < gradient.clip) + label * (1 - p < gradient.clip))))
    slope = max(float(DENSITY @ (label * (1 - label) * (high + low))), _FLATTEST)
    wrong = float(DENSITY @ ((1 - label) * high - label * low))
    return steep, slope, wrong - steep * float(at.mean) + slope * float(true.mean)


class _Observed(NamedTuple):
    """What each gradient tells: `seen` = `slopes` S b + noise, and `reaches`, how much of it is not about b itself.

    Attributes:
        seen: What is told, `[gradients, k]`.
        slopes: What of S b it is, `[gradients]`.
        variances: Variance of its noise, `[gradients]`.
        reaches: Mean square of what lies between the weights of the gradient and b, `[gradients]`.
    """

    seen: Tensor
    slopes: Tensor
    variances: Tensor
    reaches: Tensor

    def agreed(self) -> tuple[Tensor, float]:
        """Return how much of S b each tells, `[gradients]`, and the deviation of the noise of all together."""
        low, high = _CURVED, 1.0
        for _ in range(_HALVINGS if self._apart(low) > 1 else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if self._apart(middle) > 1 else (low, middle)
        shares, precision = self._shares(low)
        return shares, float(precision.rsqrt())

    def _shares(self, curved: float) -> tuple[Tensor, Tensor]:
        """Return shares and the precision of all, where a part of every reach is wrong since scores are not normal."""
        told = self.slopes / (self.variances + curved**2 * self.reaches)
        precision = (told * self.slopes).sum()
        return told / precision, precision

    def _apart(self, curved: float) -> float:
        """Return by how much the gradients differ, in what they should differ by."""
        away = self.seen - self.slopes[:, None] * (self._shares(curved)[0] @ self.seen)
        sizes = away.square().mean(1) / (self.variances + curved**2 * self.reaches)
        return float(sizes.sum()) / max(len(sizes) - 1, 1)
