"""Largest eigenvalues of symmetric matrices that are known by their products with vectors: power iteration."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_PLANE = 0.05  # the least sine between two unit vectors at which rounding does not tilt their plane


def largest_eigenvalues(product: Callable[[Tensor], Tensor], start: Tensor, images: Tensor, iterations: int
                        ) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalue of each of K symmetric matrices, `[K]`, and unit vectors near its eigenvectors,
    `[K, P]`.

    `product` multiplies each matrix by one vector, `[K, P]` to `[K, P]`. `images` are its results for the unit vectors
    `start`: the first iteration, already done. Power iteration finds the eigenvalue of largest size. Where that is
    negative, a second pass finds the largest eigenvalue, over `H + |it| I`, which has no negative one. The values
    approach the eigenvalues from below.
    """
    values, vectors = _power(product, start, images, iterations)
    if bool((values < 0).any()):
        shift = -values.clamp(max=0)[:, None]
        values, vectors = _power(lambda v: product(v) + shift * v, start, images + shift * start, iterations)
        values = values - shift.flatten()
    return values, vectors


def _power(product: Callable[[Tensor], Tensor], start: Tensor, images: Tensor, iterations: int
           ) -> tuple[Tensor, Tensor]:
    """Return the Rayleigh quotients `[K]` after some power iterations, and the unit vectors `[K, P]` that follow.

    A positive quotient is replaced by the largest Ritz value over the last two vectors, which costs no product. It is
    needed where the smallest eigenvalue is about minus the largest: there the iterations keep turning between the two.
    """
    before, vectors, length = start, start, torch.zeros_like(start[:, 0])
    for _ in range(iterations - 1):
        before, vectors, length = vectors, _following(vectors, images), images.norm(dim=1)
        images = product(vectors)
    values = (vectors * images).sum(1)
    ritz = _largest_ritz(vectors, images, before, length)
    return torch.where(values > 0, torch.maximum(values, ritz), values), _following(vectors, images)


def _following(vectors: Tensor, images: Tensor) -> Tensor:
    """Return the images `[K, P]` scaled to length 1; where an image is zero, its vector."""
    return torch.where(images.norm(dim=1, keepdim=True) > 0, unit_vectors(images), vectors)


def _largest_ritz(vectors: Tensor, images: Tensor, before: Tensor, length: Tensor) -> Tensor:
    """Return the largest Ritz value `[K]` over the plane of two unit vectors (Parlett 1998, chapter 11).

    These are v = `vectors`, whose `images` are Hv, and u = `before`, with Hu = `length` v. The value is minus infinity
    where u and v are too nearly parallel to span a plane.
    """
    cosine = (before * vectors).sum(1)
    sine = (1 - cosine.square()).clamp(min=0).sqrt()
    safe = sine.clamp(min=_PLANE)[:, None]
    second = (before - cosine[:, None] * vectors) / safe
    image = (length[:, None] * vectors - cosine[:, None] * images) / safe
    a, b, c = (vectors * images).sum(1), (second * images).sum(1), (second * image).sum(1)
    return torch.where(sine > _PLANE, (a + c) / 2 + torch.hypot((a - c) / 2, b), -torch.inf)


def unit_vectors(vectors: Tensor) -> Tensor:
    """Scale the rows `[K, P]` to length 1; a row of zeros stays a row of zeros."""
    return torch.nn.functional.normalize(vectors, dim=1, eps=torch.finfo(vectors.dtype).tiny)
