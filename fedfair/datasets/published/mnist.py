"""MNIST (LeCun et al. 1998): 60,000 handwritten digits to train with and 10,000 to test with, 28 x 28 pixels."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedfair.datasets.grouped import PARTS, GroupedDataset
from fedfair.datasets.published.download import PublicFile, fetch
from fedfair.plugins.registry import unknown

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_SHA256 = {
    "train-images-idx3": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_ARCHIVES = {
    "train-images-idx3": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                          "db8f937d487057fb14a9f0fbe97f0bc8d311ab41b750d41e1ff37c43b9e55e19"),
    "train-labels-idx1": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                          "51fc562b6747b666fbf6e84ce29d43c3cb5f9c388c664d43b33f02095313405a"),
    "t10k-images-idx3": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                         "cfeddb84311ecf044fc6a5b0f6ee8a24d265d4e83e388400186eb114082f4209"),
    "t10k-labels-idx1": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                         "e41c74e484045d39b462a7790a4af51301bd9b0b24f0154798d713ec68c45920"),
}
"""Of each file: as LeCun compressed it, which `_URL` and most mirrors have, and compressed anew by another mirror."""
VARIANTS: dict[str, dict[str, int]] = {}


def load(group: str | None = None) -> GroupedDataset:
    """Load images `[70000, 1, 28, 28]` as bytes; the digit is label and group. The published test part is kept.

    The published imbalances are values of the setting `imbalance`: "8:500" (Xu et al. 2021), "8:9%" (Esipova et al.
    2023) and "2:500" (Bagdasaryan and Shmatikov's poster, 2019). Raises `ValueError` for another `group`.
    """
    if group not in (None, "digit"):
        raise unknown("protected attribute of mnist", group, ("digit",))
    images = torch.cat([_idx(f"{part}-images-idx3") for part in ("train", "t10k")])
    labels = torch.cat([_idx(f"{part}-labels-idx1") for part in ("train", "t10k")]).long()
    published = torch.full((len(labels),), PARTS.index("train"))
    published[60_000:] = PARTS.index("test")
    return GroupedDataset(x=images[:, None], y=labels, group=labels, names=tuple(map(str, range(10))),
                          classes=10, published=published)


def _idx(name: str) -> Tensor:
    """Fetch the bytes of one idx file: `[n, 28, 28]` for images, `[n]` for labels."""
    file = PublicFile(f"mnist/{name}-ubyte.gz", f"{_URL}{name}-ubyte.gz", _SHA256[name],
                      gzip.decompress, _ARCHIVES[name])
    return _read_idx(fetch(file))


def _read_idx(path: Path) -> Tensor:
    """Read a gzipped idx file of bytes; its header is two zeros, the type, the number of dimensions, and each size."""
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", count=dimensions, offset=4).astype(int)
    return torch.tensor(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape))
