"""MNIST (LeCun et al. 1998): 60,000 handwritten digits to train with and 10,000 to test with, 28 x 28 pixels."""

from __future__ import annotations

import numpy as np
import torch

from fedfair.datasets.files import PublicFile, fetch_unzipped
from fedfair.datasets.grouped import GroupedDataset
from fedfair.registry import unknown

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_IMAGES, _LABELS = "images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"
_CONTENT = {  # SHA-256 of the unzipped files
    f"train-{_IMAGES}": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    f"train-{_LABELS}": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    f"t10k-{_IMAGES}": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    f"t10k-{_LABELS}": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_TEST = 10_000
VARIANTS: dict[str, dict[str, int]] = {}


def load(group: str | None = None) -> GroupedDataset:
    """Images `[70000, 1, 28, 28]` in [0, 1]; the digit is label and group; the last 10,000 are the published test part.

    Raises `ValueError` for another `group`.
    """
    if group not in (None, "digit"):
        raise unknown("protected attribute of mnist", group, ("digit",))
    images, labels = (np.concatenate([_values(part + kind, start) for part in ("train-", "t10k-")])
                      for kind, start in ((_IMAGES, 16), (_LABELS, 8)))
    x, y = torch.from_numpy(images).view(-1, 1, 28, 28) / 255, torch.from_numpy(labels).long()
    return GroupedDataset(x=x, y=y, group=y, names=tuple(map(str, range(10))), classes=10, tests=_TEST)


def _values(name: str, start: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bytes of one idx file after its header."""
    return np.frombuffer(fetch_unzipped(PublicFile(f"mnist/{name}", _URL + name, _CONTENT[name])), np.uint8, -1, start)
