"""Images that lie in a file until a model needs them: a data set of images may be larger than memory.

They are decoded once, one after another, into a file of bytes, of which nobody sees a name and which is gone when the
process ends, however it ends. A batch reads its own images from there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from tempfile import TemporaryFile, gettempdir
from typing import IO, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.datasets.features.lazy_rows import LazyRows


class Images(LazyRows):
    """Images as bytes, `[n, channels, height, width]`, which stay in a file until they are used.

    Examples:
        >>> shades = (np.full((1, 2, 2), shade, dtype=np.uint8) for shade in (7, 8, 9))
        >>> images = Images.written(shades)
        >>> images.shape, images[torch.tensor([2, 0])].flatten(1).float().mean(1)
        (torch.Size([3, 1, 2, 2]), tensor([9., 7.]))
    """

    file: IO[bytes]

    @classmethod
    def written(cls, images: Iterable[NDArray[np.uint8]]) -> Self:
        """Return images that are written to a file without a name, one after another.

        Args:
            images: Bytes of each, `[channels, height, width]`, all of one shape; at least one image.

        Raises:
            OSError: If the disk has no room for them.
        """
        file, shape = TemporaryFile(), (0, 0, 0)  # noqa: SIM115 - open as long as its images are used
        for image in images:
            shape = image.shape
            _append(file, image.tobytes())
        return cls.of(file, shape, file.tell() // math.prod(shape))

    @classmethod
    def of(cls, file: IO[bytes], shape: tuple[int, ...], number: int, places: Tensor | None = None) -> Self:
        """Return some images of a file.

        Args:
            file: File of nothing but images.
            shape: Shape of each.
            number: How many these are.
            places: Their places in the file, `[number]`; None for all, in their order.
        """
        made: Self = Tensor._make_wrapper_subclass(cls, (number, *shape), dtype=torch.uint8)
        made.file, made.places = file, places
        return made

    def at(self, places: Tensor) -> Self:
        """See `LazyRows`."""
        return self.of(self.file, tuple(self.shape[1:]), len(places), places)

    def made(self) -> Tensor:
        """See `LazyRows`; raises `OSError` if the disk fails."""
        made = np.empty(self.shape, dtype=np.uint8)
        size, descriptor = made[:1].nbytes, self.file.fileno()
        places = range(len(made)) if self.places is None else self.places.tolist()
        for image, place in zip(made, places, strict=True):
            read = os.preadv(descriptor, [image.data], place * size)
            if read != size:
                raise OSError(f"image {place + 1} could not be read again from {gettempdir()}: the disk failed")
        return torch.from_numpy(made)


def _append(file: IO[bytes], content: bytes) -> None:
    """Write to the end of a file; what is written can be read at once."""
    try:
        file.write(content)
        file.flush()
    except OSError as error:
        raise OSError(f"the images have no room in {gettempdir()} ({error.strerror}), where they are kept until the "
                      "program ends: make room, or set TMPDIR to a folder on a larger disk") from error
