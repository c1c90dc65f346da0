"""Features that are made when they are needed: what stands where the tensor of all of them would.

`LazyRows` has the shape and type of that tensor, and some of its records are `LazyRows` again. Every other operation
makes the features first, those of the records at hand. So a computation that goes through the records in portions never
has all features in memory, and one that does not is as right as before.

`Images` and the `Numbers` of a table are in a file until then: a data set may be larger than memory. They are read
once, one after another, into a file of bytes, of which nobody sees a name and which is gone when the process ends,
however it ends. A batch reads its own images from there, and what looks at a column reads the numbers of that column.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_OF_SHAPE = {Tensor.__len__, Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point,
             *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "nbytes"))}


class LazyRows(Tensor):
    """Features of some records, `[n, ...]`, which share what they are made of with other rows of the same whole.

    Attributes:
        places: Places of these records in the whole, `[n]`; None for all, in their order.
    """

    places: Tensor | None

    @abstractmethod
    def at(self, places: Tensor) -> Self:
        """Return the records at some places of the whole.

        Args:
            places: Their places, `[n]`.
        """

    @abstractmethod
    def made(self) -> Tensor:
        """Return the features as a plain tensor, `[n, ...]`."""

    def rows(self, chosen: Tensor | slice) -> Self:
        """Return some of the records.

        Args:
            chosen: Which of them: their rows here, `[m]`, or truth values, `[n]`.
        """
        if isinstance(chosen, slice) and chosen.indices(len(self)) == (0, len(self), 1):
            return self
        if self.places is not None:
            return self.at(self.places[chosen])
        if isinstance(chosen, slice):
            return self.at(torch.arange(*chosen.indices(len(self))))
        return self.at(torch.arange(len(self))[chosen])

    def without_making(self, func: Callable[..., Any], *index: Any) -> Tensor | None:
        """Return what a function gives that needs no features; None if it needs them.

        Args:
            func: Function of PyTorch.
            index: Its other arguments.
        """
        if func is Tensor.index_select and index[0] == 0:
            return self.rows(index[1])
        if func is Tensor.to and len(index) == 1 and isinstance(index[0], str | torch.device) and str(
                index[0]) == "cpu":
            return self
        if func is Tensor.__getitem__ and isinstance(index[0], Tensor | slice):
            return self.rows(index[0])
        return None

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        """Index by record, and let every other function have the features."""
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_SHAPE:
                return func(*args, **(kwargs or {}))
            if isinstance(args[0], LazyRows) and not kwargs:
                known = args[0].without_making(func, *args[1:])
                if known is not None:
                    return known
            return func(*map(plain, args), **{name: plain(value) for name, value in (kwargs or {}).items()})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Refuse what goes around `__torch_function__`: there is no memory with features."""
        raise TypeError(f"{func} cannot be applied to rows that are made when they are needed, which have no memory: "
                        "make the features first")


def plain(value: Any) -> Any:
    """Return features in place of what they are made of, and anything else as it is.

    Args:
        value: Argument of a function.
    """
    if isinstance(value, LazyRows):
        return value.made()
    if isinstance(value, list | tuple) and any(isinstance(each, LazyRows) for each in value):
        return [*map(plain, value)]
    return value


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
        places = range(len(made)) if self.places is None else self.places.tolist()
        for image, place in zip(made, places, strict=True):
            _fill(image, self.file, place * image.nbytes)
        return torch.from_numpy(made)


class _Piece(NamedTuple):
    """Where some numbers of a column lie in a file: from which byte on, and how many they are."""

    start: int
    number: int


class Numbers(LazyRows):
    """Numbers of one column of a table, `[n]`, in double precision, which stay in a file until they are used.

    Examples:
        >>> table = NumberFile(["age", "income"])
        >>> for ages in ([20.0, 30.0], [40.0]):
        ...     table.append({"age": np.array(ages), "income": np.array(ages) * 1000})
        >>> table.column("income")[torch.tensor([2, 0])] / 1000
        tensor([40., 20.], dtype=torch.float64)
    """

    file: IO[bytes]
    pieces: list[_Piece]

    @classmethod
    def of(cls, file: IO[bytes], pieces: list[_Piece], places: Tensor | None = None) -> Self:
        """Return some numbers of a column.

        Args:
            file: File that holds them.
            pieces: Where the pieces of the column lie in it.
            places: Places of these numbers in the column, `[n]`; None for all, in their order.
        """
        number = sum(piece.number for piece in pieces) if places is None else len(places)
        made: Self = Tensor._make_wrapper_subclass(cls, (number,), dtype=torch.float64)
        made.file, made.pieces, made.places = file, pieces, places
        return made

    def at(self, places: Tensor) -> Self:
        """See `LazyRows`."""
        return self.of(self.file, self.pieces, places)

    def made(self) -> Tensor:
        """See `LazyRows`; raises `OSError` if the disk fails."""
        column = np.empty(sum(piece.number for piece in self.pieces))
        first = 0
        for start, number in self.pieces:
            _fill(column[first:first + number], self.file, start)
            first += number
        made = torch.from_numpy(column)
        return made if self.places is None else made[self.places]


class NumberFile:
    """Columns of numbers that are written one chunk of a table after another.

    Args:
        names: Names of the columns.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - open as long as its numbers are used
        self._pieces: dict[str, list[_Piece]] = {name: [] for name in names}

    def append(self, chunk: Mapping[str, NDArray[np.float64]]) -> None:
        """Write the numbers of a chunk.

        Args:
            chunk: The numbers of every column, each `[n]`.

        Raises:
            OSError: If the disk has no room for them.
        """
        for name, numbers in chunk.items():
            self._pieces[name].append(_Piece(self._file.tell(), len(numbers)))
            _append(self._file, numbers.tobytes())

    def column(self, name: str) -> Numbers:
        """Return the numbers of a column, `[n]`.

        Args:
            name: Its name.
        """
        return Numbers.of(self._file, self._pieces[name])


def _fill(numbers: NDArray[Any], file: IO[bytes], start: int) -> None:
    """Read numbers from a file, from a byte on; raise `OSError` if the disk fails."""
    left = numbers.reshape(-1).view(np.uint8)
    while len(left):
        read = os.preadv(file.fileno(), [left.data], start)
        if not read:
            raise OSError(f"what was kept in {gettempdir()} could not be read again: the disk failed")
        left, start = left[read:], start + read


def _append(file: IO[bytes], content: bytes) -> None:
    """Write to the end of a file; what is written can be read at once."""
    try:
        file.write(content)
        file.flush()
    except OSError as error:
        raise OSError(f"the records have no room in {gettempdir()} ({error.strerror}), where they are kept until the "
                      "program ends: make room, or set TMPDIR to a folder on a larger disk") from error
