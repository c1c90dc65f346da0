"""Features of bounded norm: a public function of one record, whose Euclidean norm is at most 1 for every record.

What one record adds to a sum of such features, or of their products, needs no clipping.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fedfair.datasets.features.encoding import Bounding, Encoding
from fedfair.datasets.features.image_features import SMALLEST, filters, handwriting
from fedfair.datasets.grouped import GroupedDataset

FeatureMap = Literal["bounded", "binned", "standardised", "ranges", "filters", "handwriting", "pixels"]
"""Kinds of features of bounded norm: what suits the records, then three of tables and three of images."""

_STANDARDISED = math.sqrt(15)  # largest norm of standardised features: with the constant 1, phi is divided by 4


def bounded(data: GroupedDataset, kind: FeatureMap) -> GroupedDataset:
    """Return the records with features of norm at most 1, the last of which is constant (`Bounding`).

    Args:
        data: Prepared records: of a table in bins or with scaled numbers, or images as bytes.
        kind: Kind of the features.

    Raises:
        ValueError: If the records are no table, or no images, as the kind needs.
    """
    kind = _suited(data) if kind == "bounded" else kind
    if kind in _IMAGES:
        if data.encoding.features:
            raise ValueError(f"features is {kind!r}, but the records are rows of a table: take binned or ranges")
        features, bounding = _of_images(data.x, kind)
        return replace(data, x=bounding.of(features), pixels=None, encoding=Encoding(bounding=bounding, images=kind))
    if not data.encoding.features:
        raise ValueError(f"features is {kind!r}, but the records are no table: take filters or pixels")
    bounding = bounding_of(data, kind)
    encoding = data.encoding._replace(bounding=bounding)
    return replace(data, x=bounding.of(data.x.double()), encoding=encoding)


def _suited(data: GroupedDataset) -> FeatureMap:
    """Return the kind of features that suits the records."""
    if data.encoding.features:
        return "binned"
    return "filters" if data.x.dtype == torch.uint8 and min(data.x.shape[-2:]) >= SMALLEST else "pixels"


def bounding_of(data: GroupedDataset, kind: FeatureMap) -> Bounding:
    """Return how a table's rows are bounded; a function of its columns, never of its records.

    With bins, categories and numbers from 0 to 1, a row of m columns has a norm of at most sqrt(m), and none is
    shortened.
    """
    if kind == "standardised":
        return Bounding(_STANDARDISED, 1.0)
    return Bounding(math.sqrt(len(set(data.columns))), 1.0)


def image_features(images: Tensor, kind: str) -> Tensor:
    """Return the bounded features of images, `[n, d]`, in single precision.

    Args:
        images: Bytes, `[n, ...]`, or with "pixels" also numbers from 0 to 1.
        kind: "filters", "handwriting" or "pixels".

    Raises:
        ValueError: If the kind is not "pixels" and a record is no image of bytes, or too small a one.
    """
    features, bounding = _of_images(images, kind)
    return bounding.of(features)


def _of_images(images: Tensor, kind: str) -> tuple[Tensor, Bounding]:
    """Return the features of images, and how they are bounded; raise `ValueError` for what is no image."""
    if kind != "pixels" and (images.dtype != torch.uint8 or min(images.shape[-2:]) < SMALLEST):
        raise ValueError(f"features is {kind!r}, but the records are no images of at least {SMALLEST} x {SMALLEST} "
                         'pixels, one byte each: take features = "pixels"')
    return _IMAGES[kind](images)


def _filters(images: Tensor) -> tuple[Tensor, Bounding]:
    """Return what a fixed bank of filters answers."""
    return filters(images), Bounding(math.hypot(0.8, 0.5), 0.33)


def _handwriting(images: Tensor) -> tuple[Tensor, Bounding]:
    """Return what the filters answer, along the axes of public digits."""
    return handwriting(images), Bounding(1.0, 0.33)


def _pixels(images: Tensor) -> tuple[Tensor, Bounding]:
    """Return pixels from 0 to 1; an image whose norm is at most a third of the largest is not shortened."""
    flat = images.flatten(1).float() / (255 if images.dtype == torch.uint8 else 1)
    longest = math.sqrt(flat.shape[1]) / 3
    return flat, Bounding(longest, longest / 3)


_IMAGES: Mapping[str, Callable[[Tensor], tuple[Tensor, Bounding]]] = {
    "filters": _filters, "handwriting": _handwriting, "pixels": _pixels}
