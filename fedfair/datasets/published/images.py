"""Public images: the digits of scikit-learn, MNIST and CelebA. Of digits, the digit is label and group."""

from __future__ import annotations

import gzip
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedfair.datasets import Source
from fedfair.datasets.grouped import PARTS, GroupedDataset
from fedfair.datasets.published.download import PublicFile, data_folder, fetch
from fedfair.plugins.registry import unknown

_DIGITS_FILE = "datasets/data/digits.csv.gz"
_TEN = tuple(map(str, range(10)))

_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_MNIST_SHA256 = {
    "train-images-idx3": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_MNIST_ARCHIVES = {
    "train-images-idx3": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                          "db8f937d487057fb14a9f0fbe97f0bc8d311ab41b750d41e1ff37c43b9e55e19"),
    "train-labels-idx1": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                          "51fc562b6747b666fbf6e84ce29d43c3cb5f9c388c664d43b33f02095313405a"),
    "t10k-images-idx3": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                         "cfeddb84311ecf044fc6a5b0f6ee8a24d265d4e83e388400186eb114082f4209"),
    "t10k-labels-idx1": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                         "e41c74e484045d39b462a7790a4af51301bd9b0b24f0154798d713ec68c45920"),
}
"""Of each file: as LeCun compressed it, as the address above and most mirrors have it, and as another mirror did."""

_CELEBA, _CELEBA_SIZE = "flwrlabs/celeba", 64


def digits(group: str | None = None) -> GroupedDataset:
    """Load the 1,797 handwritten digits that come with scikit-learn, `[n, 1, 8, 8]` in [0, 1], without a download.

    Raises `ValueError` for another `group` than the digit.
    """
    if group not in (None, "digit"):
        raise unknown("protected attribute of digits", group, ("digit",))
    rows = torch.from_numpy(_digits_rows())
    x, y = rows[:, :-1].view(-1, 1, 8, 8) / 16, rows[:, -1].long()
    return GroupedDataset(x=x, y=y, group=y, names=_TEN, classes=10)


def _digits_rows() -> npt.NDArray[np.float64]:
    """Read pixels, 0 to 16, and the digit, `[1797, 65]`, from the file that `sklearn.datasets.load_digits` reads.

    Importing scikit-learn takes over a second, a quarter of the time in which a process that trains on digits starts,
    and Flower's SuperNodes start a process for every message. If the file is not found, scikit-learn is imported.
    """
    spec = find_spec("sklearn")
    for package in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(package, _DIGITS_FILE)).is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    return np.column_stack(load_digits(return_X_y=True))


def mnist(group: str | None = None) -> GroupedDataset:
    """Load MNIST (LeCun et al. 1998), images `[70000, 1, 28, 28]` as bytes; the published test part, 10,000, is kept.

    The published imbalances are values of the setting `imbalance`: "8:500" (Xu et al. 2021), "8:9%" (Esipova et al.
    2023) and "2:500" (Bagdasaryan and Shmatikov's poster, 2019). Raises `ValueError` for another `group`.
    """
    if group not in (None, "digit"):
        raise unknown("protected attribute of mnist", group, ("digit",))
    images = torch.cat([_idx(f"{part}-images-idx3") for part in ("train", "t10k")])
    labels = torch.cat([_idx(f"{part}-labels-idx1") for part in ("train", "t10k")]).long()
    published = torch.full((len(labels),), PARTS.index("train"))
    published[60_000:] = PARTS.index("test")
    return GroupedDataset(x=images[:, None], y=labels, group=labels, names=_TEN, classes=10,
                          published=published)


def _idx(name: str) -> Tensor:
    """Fetch the bytes of one idx file: `[n, 28, 28]` for images, `[n]` for labels."""
    file = PublicFile(f"mnist/{name}-ubyte.gz", f"{_MNIST_URL}{name}-ubyte.gz", _MNIST_SHA256[name],
                      gzip.decompress, _MNIST_ARCHIVES[name])
    return _read_idx(fetch(file))


def _read_idx(path: Path) -> Tensor:
    """Read a gzipped idx file of bytes; its header is two zeros, the type, the number of dimensions, and each size."""
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", count=dimensions, offset=4).astype(int)
    return torch.tensor(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape))


def celeba(group: str | None = None) -> GroupedDataset:
    """Load CelebA (Liu et al. 2015), 202,599 images `[n, 3, 64, 64]` as bytes; label 1 is Male.

    A participant is a celebrity. The published parts are kept. `group` is one of the binary attributes, by default
    Eyeglasses as in Esipova et al. 2023. The data come from FEDFAIR_DATA_DIR, if that is set and has a folder celeba in
    Hugging Face's format, and else from the hub. Raises as `hugging_face.load` does.
    """
    from fedfair.datasets import hugging_face  # here: with pandas, which digits do without

    attribute = group or "Eyeglasses"
    source = data_folder("celeba") or _CELEBA
    data = hugging_face.load(str(source), "Male", attribute, participant="celeb_id", size=_CELEBA_SIZE)
    return replace(data, names=(f"without {attribute}", f"with {attribute}"))


SOURCES = {"celeba": Source(celeba, {}), "digits": Source(digits, {}), "mnist": Source(mnist, {})}
"""The images by name."""
