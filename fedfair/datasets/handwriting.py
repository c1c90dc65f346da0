"""Features of handwriting: what the filters answer, along the axes that tell public digits apart.

Noise on second moments grows with the number of features, and few that tell classes apart need less of it. The axes are
Fisher's, of the optical digits of Alpaydin and Kaynak (1998): 1,797 images of 8 x 8 pixels by 43 writers, public, which
scikit-learn holds. An image's features are a function of that image alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fedfair.datasets import digits
from fedfair.datasets.image_features import filters

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
    public = digits.load()
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
