"""A fixed bank of filters for small images: public, so that what they answer depends on each image alone.

Complex Gabor filters of 8 orientations and 2 wavelengths, whose moduli are averaged over a grid, and the image itself
at a low resolution (Daugman 1985; the first layer of a scattering network, Bruna and Mallat 2013).

Features of handwriting: what the filters answer, along the axes that tell public digits apart.

Noise on second moments grows with the number of features, and few that tell classes apart need less of it. The axes are
Fisher's, of the optical digits of Alpaydin and Kaynak (1998): 1,797 images of 8 x 8 pixels by 43 writers, public, which
scikit-learn holds. An image's features are a function of that image alone.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fedfair.datasets.published.images import digits

_SIZE, _ORIENTATIONS, _WAVELENGTHS = 9, 8, (4.0, 8.0)
_GRID, _COARSE = 4, 7
_FILTERED, _IMAGE = 0.8, 0.5  # norms of the two kinds of features
_AT_A_TIME = 2048
_LEAST = 1e-12

SMALLEST = 16
"""The smallest height and width, in pixels."""


def filters(images: Tensor) -> Tensor:
    """Return the features of images, `[n, 16 * 16 + 49]` with one channel: of norm sqrt(.8^2 + .5^2), or 0 if black.

    Args:
        images: Bytes, `[n, height, width]` or `[n, channels, height, width]`; channels are averaged.
    """
    parts = [_features(images[first:first + _AT_A_TIME]) for first in range(0, len(images), _AT_A_TIME)]
    return torch.cat(parts) if parts else torch.zeros(0, 2 * _ORIENTATIONS * _GRID**2 + _COARSE**2)


def _features(images: Tensor) -> Tensor:
    """Return the features of some images."""
    grey = images.float().div(255)
    grey = grey.unsqueeze(1) if grey.dim() == 3 else grey.mean(1, keepdim=True)
    real, imaginary = F.conv2d(grey, _bank(), padding=_SIZE // 2).chunk(2, 1)
    moduli = F.adaptive_avg_pool2d(torch.hypot(real, imaginary), _GRID).flatten(1)
    coarse = F.adaptive_avg_pool2d(grey, _COARSE).flatten(1)
    return torch.cat([_FILTERED * _unit(moduli), _IMAGE * _unit(coarse)], 1)


def _unit(rows: Tensor) -> Tensor:
    """Return rows of norm 1; rows of zeros stay."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp(min=_LEAST)
    return rows / norms


@lru_cache(maxsize=1)
def _bank() -> Tensor:
    """Return the filters, `[2 * 16, 1, 9, 9]`: the real parts, then the imaginary parts; none answers to a constant."""
    across = torch.arange(_SIZE).float() - _SIZE // 2
    y, x = torch.meshgrid(across, across, indexing="ij")
    waves = []
    for wavelength in _WAVELENGTHS:
        envelope = torch.exp(-(x**2 + y**2) / (2 * (wavelength / 2) ** 2))
        for turn in range(_ORIENTATIONS):
            angle = math.pi * turn / _ORIENTATIONS
            phase = 2 * math.pi / wavelength * (x * math.cos(angle) + y * math.sin(angle))
            wave = torch.polar(envelope, phase)
            waves.append(wave - envelope * (wave.sum() / envelope.sum()))
    bank = torch.stack(waves).unsqueeze(1)
    return torch.cat([bank.real, bank.imag])


_AXES, _RIDGE = 50, 0.1  # number of axes; what is added to variances within classes, in shares of their mean
_SIDE, _COPIES = 28, 3
_SIZES, _TURN, _SLANT, _SHIFT = (0.62, 0.78), 0.25, 0.25, 0.1  # how far copies differ, in shares of the image
_GREY = 0.25  # from here to 1 - _GREY a coarse pixel becomes the edge of a stroke


class _Axes(NamedTuple):
    """Axes of public images.

    Attributes:
        middle: Mean of what the filters answer, `[d]`.
        axes: Directions, `[d, 50]`, along which classes have variance 1 within, about.
    """

    middle: Tensor
    axes: Tensor


def handwriting(images: Tensor) -> Tensor:
    """Return the features of images, `[n, 50]`, each row of norm 1.

    Args:
        images: Bytes, `[n, height, width]` or `[n, channels, height, width]`.
    """
    public = _axes()
    return F.normalize((filters(images) - public.middle) @ public.axes, dim=1)


@lru_cache(maxsize=1)
def _axes() -> _Axes:
    """Return the axes that tell apart what the filters answer to public digits (Fisher 1936)."""
    public = digits()
    answers, digit = filters(_copies(public.x.float())).double(), public.y.repeat(_COPIES)
    middle, width = answers.mean(0), answers.shape[1]
    within = torch.stack([torch.cov(answers[digit == one].T) for one in range(10)]).mean(0)
    within += _RIDGE * within.trace() / width * torch.eye(width, dtype=torch.float64)
    whitening = torch.linalg.inv(torch.linalg.cholesky(within))
    axes = torch.linalg.eigh(whitening @ torch.cov((answers - middle).T) @ whitening.T).eigenvectors.flip(1)[:, :_AXES]
    axes = whitening.T @ axes
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # an axis has no sign: every machine takes one
    return _Axes(middle.float(), (axes * signs).float())


def _copies(coarse: Tensor) -> Tensor:
    """Return copies of images, `[n, 1, 8, 8]`, as bytes, `[3 n, 1, 28, 28]`: turned, slanted, moved, of other sizes."""
    generator = torch.Generator().manual_seed(0)
    fine = F.interpolate(coarse, size=(_SIDE, _SIDE), mode="bicubic", align_corners=False).repeat(_COPIES, 1, 1, 1)
    grid = F.affine_grid(_changes(len(fine), generator), list(fine.shape), align_corners=False)
    strokes = F.grid_sample(fine, grid, mode="bicubic", align_corners=False)
    return ((strokes - _GREY) / (1 - 2 * _GREY)).clamp(0, 1).mul(255).to(torch.uint8)


def _changes(number: int, generator: torch.Generator) -> Tensor:
    """Return random affine maps from places in a copy to places in its image, `[number, 2, 3]`."""
    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(number, *shape, generator=generator)

    size, angle, slant = between(*_SIZES), between(-_TURN, _TURN), between(-_SLANT, _SLANT)
    rows = [torch.stack([angle.cos(), slant - angle.sin()], 1), torch.stack([angle.sin(), angle.cos()], 1)]
    turned = torch.stack(rows, 1)
    shift = between(-_SHIFT, _SHIFT, 2)
    return torch.cat([turned, shift.unsqueeze(2)], 2) / size[:, None, None]
