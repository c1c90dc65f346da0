"""A fixed bank of filters for small images: public, so that what they answer depends on each image alone.

Complex Gabor filters of 8 orientations and 2 wavelengths, whose moduli are averaged over a grid, and the image itself
at a low resolution (Daugman 1985; the first layer of a scattering network, Bruna and Mallat 2013).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

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
    return torch.cat([_features(part) for part in torch.split(images, _AT_A_TIME)]) if len(images) else torch.zeros(
        0, 2 * _ORIENTATIONS * _GRID**2 + _COARSE**2)


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
