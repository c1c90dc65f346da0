"""Excessive risk of one private step: what noise and clipping, in magnitude and direction, do to each group's loss.

Esipova et al. 2023, Propositions 1-3, after Tran et al. 2021; the expected error of a private gradient, Xu et al. 2021,
section 4.2. Symbols, for group k of K and one batch:

    lr      learning rate                             g_k     mean gradient of the group's training records
    g       batch gradient that SGD would step along  H_k     their mean Hessian
    gbar    the same after clipping

Both are divided by the expected batch size, like the step itself; the step moves the weights by
-lr (gbar + noise), noise ~ N(0, s^2 I). To second order the group's expected loss then changes by
-lr <g_k, g> + lr^2/2 g'H_k g, which SGD pays too, and by R_mag + R_dir + R_noise. Expectations over batches are means
of these terms. The rotation M that takes g to the direction of gbar needs no matrix: M g = gbar |g| / |gbar|.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Along(NamedTuple):
    """The groups' losses along a vector v: `|v|`, the slopes `<g_k, v>` `[K]` and the curvatures `v'H_k v` `[K]`."""

    norm: float
    slopes: Tensor
    curvatures: Tensor


def noise_risk(learning_rate: float, deviation: float, traces: Tensor) -> Tensor:
    """Return R_noise `[K]` of Proposition 1 from `Tr(H_k)` `[K]` and the standard deviation s of each noisy coordinate.

    The proposition writes C0 sigma for s; a step that divides by b has s = C0 sigma / b.
    """
    return learning_rate**2 / 2 * deviation**2 * traces


def magnitude_risk(learning_rate: float, plain: Along, clipped: Along) -> Tensor:
    """Return R_mag `[K]` of Proposition 2 for one batch: g is replaced by a vector along it that is as long as gbar."""
    ratio = _ratio(plain, clipped)
    return (learning_rate * (1 - ratio) * plain.slopes
            + learning_rate**2 / 2 * (ratio**2 - 1) * plain.curvatures)


def direction_risk(learning_rate: float, plain: Along, clipped: Along) -> Tensor:
    """Return R_dir `[K]` of Proposition 2 for one batch: that vector is turned to the direction of gbar."""
    ratio = _ratio(plain, clipped)
    return (learning_rate * (ratio * plain.slopes - clipped.slopes)
            + learning_rate**2 / 2 * (clipped.curvatures - ratio**2 * plain.curvatures))


def direction_gap_bound(learning_rate: float, plain: Along, clipped: Along) -> Tensor:
    """Return Proposition 3's lower bounds (equation 12) on `R_dir[a] - R_dir[b]` for one batch: `[K, K]`, entry (a, b).

    They hold for a convex loss and a learning rate of at most 1 / the largest eigenvalue of any H_k. No angle is
    computed, since `|g_k| |gbar| (cos(g_k, g) - cos(g_k, gbar))` is `<g_k, g> |gbar| / |g| - <g_k, gbar>`.
    """
    first_order = _ratio(plain, clipped) * plain.slopes - clipped.slopes
    return learning_rate * (first_order[:, None] - first_order[None, :] - clipped.norm**2)


def clip_gap_bound(learning_rate: float, gradient_norms: Tensor, shares: Tensor, clip_norm: float) -> Tensor:
    """Return Tran et al. 2021's lower bounds on `R_clip[a] - R_clip[b]`: `[K, K]`, entry (a, b).

    They are computed from `|g_k|` `[K]` and the shares `p_k` `[K]` of the training records. Theorem 3 says that the
    difference is positive if `|g_a| (p_a - p_a^2 / 2) >= 5/2 C + |g_b| (1 + p_b + p_b^2 / 2)`. The bound is the left
    side less the right, times `lr |g_a|`. It uses norms, not directions, and assumes two groups, what Proposition 3
    assumes, and `|g_a| >= max(C, |g_b|)`.
    """
    of_a = gradient_norms * (shares - shares**2 / 2)
    of_b = gradient_norms * (1 + shares + shares**2 / 2)
    return learning_rate * gradient_norms[:, None] * (of_a[:, None] - 2.5 * clip_norm - of_b[None, :])


def expected_error(sizes: Tensor, excess: Tensor, noise_scale: float) -> Tensor:
    """Bound the expected error of each group's private batch gradient, `[K]` (Xu et al. 2021, equation 1).

    The bound is `(noise_scale + sum_i max(0, n_i - C)) / b_k`, from the groups' batch sizes b_k and the sums `excess`;
    it is NaN for a group without a record in the batch. `noise_scale` is the mean absolute deviation of one noisy
    coordinate: C / eps for the paper's Laplace noise, `gaussian_scale` for Gaussian noise.
    """
    return (noise_scale + excess) / torch.where(sizes > 0, sizes, math.nan)


def gaussian_scale(deviation: float) -> float:
    """Return the mean absolute deviation of a Gaussian of this standard deviation."""
    return deviation * math.sqrt(2 / math.pi)


def trace_estimate(sums: Tensor, squares: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means `[K]` of so many independent `samples` `[K]`, and their standard errors `[K]`.

    `sums` and `squares` `[K]` are sums over the samples and their squares. For records that were drawn at random, the
    mean of samples of `Tr(H_i)` estimates `Tr(H_k)` (Hutchinson 1990). Where all records are taken, the differences
    between them are no error, though they count as one here. The standard error of fewer than two samples is NaN, and
    so is the mean of none.
    """
    means = sums / samples
    variances = (squares / samples - means.square()).clamp(min=0) * samples / (samples - 1)
    return means, torch.where(samples > 1, variances / samples, math.nan).sqrt()


def rademacher(parameters: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Draw a vector `[P]` of independent signs."""
    octets = torch.randint(256, ((parameters + 7) // 8,), generator=generator, dtype=torch.uint8)
    return torch.from_numpy(np.unpackbits(octets.numpy(), count=parameters)).to(dtype) * 2 - 1


def _ratio(plain: Along, clipped: Along) -> float:
    """Return `|gbar| / |g|`; 1 for an empty batch, which changes nothing."""
    return clipped.norm / plain.norm if plain.norm else 1.0
