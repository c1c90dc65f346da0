"""What the features of images are worth at small epsilons: moments on MNIST with 500 eights, by kind of features.

Run: FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.image_features [--draws N]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor

from fedfair.accounting import Release, calibrate
from fedfair.datasets.features.bounded import image_features
from fedfair.datasets.grouped import PARTS, GroupedDataset
from fedfair.datasets.published import mnist
from fedfair.moments.heads import discriminant
from fedfair.moments.release import Moments
from fedfair.moments.sums import SENSITIVITY, moment_sums, unsvec

_EPSILONS, _DELTA = (6.0, 1.0, 0.5, 0.2), 1e-6
_RARE, _KEPT = 8, 500


def main() -> None:
    """Print accuracy, accuracy of class 8, and of the worst class, means over draws of records and noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5)
    draws = range(parser.parse_args().draws)
    data = mnist.load()
    for kind in ("filters", "handwriting"):
        features = image_features(data.x, kind).double()
        for epsilon in _EPSILONS:
            sigma = SENSITIVITY * calibrate(lambda m: {Release(1.0, m): 1}, epsilon, _DELTA, "pld")
            figures = np.array([_figures(features, data, sigma, draw) for draw in draws])
            means, spread = figures.mean(0), figures.std(0, ddof=1)
            told = ", ".join(f"{mean:.3f} ({sd:.3f})" for mean, sd in zip(means, spread, strict=True))
            print(f"{kind:12} epsilon {epsilon:3}: {told}", flush=True)


def _figures(features: Tensor, data: GroupedDataset, sigma: float, draw: int) -> tuple[float, float, float]:
    """Return the figures of one draw of records and noise."""
    generator = torch.Generator().manual_seed(draw)
    train = data.published == PARTS.index("train")
    rare = torch.nonzero(train & (data.y == _RARE))[:, 0]
    kept = train.clone()
    kept[rare[torch.randperm(len(rare), generator=generator)[_KEPT:]]] = False
    x, y = features[kept], data.y[kept]
    sums = moment_sums(x, y, torch.zeros_like(y), 1, 10, by_group=False)
    second, first = (value + sigma * torch.randn(value.shape, generator=generator, dtype=value.dtype)
                     for value in (sums["second"], sums["first"]))
    head = discriminant(Moments(unsvec(second), first, sigma, float(x[0, -1])).pooled())
    right = ((features[~train] @ head.weights).argmax(1) == data.y[~train]).double()
    by_class = [float(right[data.y[~train] == one].mean()) for one in range(10)]
    return float(right.mean()), by_class[_RARE], min(by_class)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
