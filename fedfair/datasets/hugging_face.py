"""Data sets in Hugging Face's format with a label and a group column, from its hub or from a folder.

The hub is read through Flower Datasets. A folder holds parquet, CSV or image files, or was saved by `datasets`.

Published splits by their usual names, and test parts whose labels the source keeps to itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.datasets.columns.convention import ALL, Asked
from fedfair.datasets.columns.tidy import found_in_rows, reading_of, tidied, whole_numbers
from fedfair.datasets.features.features import leave_out
from fedfair.datasets.features.lazy_rows import Images
from fedfair.datasets.grouped import PARTS, GroupedDataset, weights_of
from fedfair.datasets.names import visible
from fedfair.datasets.split import Missing
from fedfair.datasets.table import codes, complete, features_alone, from_table, refuse_two_roles
from fedfair.plugins.registry import unknown

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

_log = logging.getLogger(__name__)
_TRAIN, _VALID, _TEST = range(len(PARTS))
_NO_PART = -1
_USUAL = {"train": _TRAIN, "training": _TRAIN, "valid": _VALID, "validation": _VALID, "val": _VALID, "dev": _VALID,
          "devel": _VALID, "development": _VALID, "test": _TEST, "testing": _TEST, "holdout": _TEST}
_EVALUATION = ("eval", "evaluation")  # the test part of some, the validation part of others
_HIDDEN = ("-1", "-1.0", "?", "", "hidden", "unknown", "unlabeled", "unlabelled")


def parts_of(names: Sequence[str]) -> dict[str, int]:
    """Return the part of each published split, a position in `PARTS`, or -1 for all of them where none has such a part.

    What follows "_", "-" or "." in a name does not count: validation_matched is validation. "eval" is the test part
    where there is no other, and so is a validation part. Splits that are no part, beside others that are, are left out;
    the logger warns of both.

    Args:
        names: Names of the published splits.
    """
    first = {name: re.split(r"[_\-.]", name.lower())[0] for name in names}
    parts = {name: _USUAL[word] for name, word in first.items() if word in _USUAL}
    evaluation = [name for name, word in first.items() if word in _EVALUATION]
    parts |= dict.fromkeys(evaluation, _VALID if _TEST in parts.values() else _TEST)
    if _TRAIN not in parts.values():
        return dict.fromkeys(names, _NO_PART)
    others = [name for name in names if name not in parts]
    if others:
        _log.warning("left out: the published split %s, which is neither training, validation nor test part",
                     visible(", ".join(others)))
    if _TEST in parts.values():
        return parts
    if _VALID in parts.values():
        _log.warning("no test part is published: the validation part stands for it")
    return {name: _NO_PART if set(parts.values()) == {_TRAIN} else (_TEST if part == _VALID else part)
            for name, part in parts.items()}


def refuse_hidden_labels(labels: pd.Series, part: pd.Series) -> None:
    """Raise `ValueError` if the published test part has no labels, or classes that no other part has.

    Args:
        labels: Tidied label of each record; missing ones are NA.
        part: Part of each record, a position in `PARTS`.
    """
    tested = labels[part == _TEST]
    known = set(labels[part != _TEST].dropna().astype(str))
    alone = sorted(set(tested.dropna().astype(str)) - known)
    mend = "leave that split out, and the validation part stands for it, or get its labels"
    if len(tested) and (tested.isna().all() or set(alone) & set(_HIDDEN)):
        seen = "no value" if tested.isna().all() else ", ".join(sorted(set(tested.dropna().astype(str)))[:3])
        raise ValueError(f"the labels of the published test part are hidden ({seen}), as benchmarks do: {mend}")
    if alone:
        raise ValueError(f"the published test part has a class that no other part has, {', '.join(map(repr, alone))}: "
                         f"nothing can be learned of it, and it may stand for hidden labels; {mend}")


_AS_ASKED = Asked()
_GREY = {"1", "L", "LA", "La"}
_PART = "fedfair: part"  # a column that is added here: the part of each record


def load(name: str, label: str, group: str, missing: Missing = "refuse", participant: str | None = None,
         size: int | None = None, without: Sequence[str] = (), numbers: Sequence[str] | None = None,
         asked: Asked = _AS_ASKED, weight: str | None = None) -> GroupedDataset:
    """Load the data set called `name` on the hub (NAME or NAME@SUBSET), or the one in the folder `name`.

    An image column becomes `x`, `[n, channels, height, width]` bytes, scaled to `size` x `size` pixels if that is
    given; then other columns are left out. Without an image column, the columns are those of a table (see
    `fedfair.datasets.table.from_table`). Columns `without` are not read. Published parts are kept, see
    `fedfair.datasets.hugging_face.parts_of`. Raises `FileNotFoundError` if there is no such data set, and
    `ValueError` if it cannot be used or Flower Datasets is not installed.
    """
    rows = _rows(name)
    refuse_two_roles(weight, (label, group, participant))
    for column in filter(None, (label, group, participant, weight)):
        if column not in rows.column_names:
            raise unknown(f"column of {name}", column, set(rows.column_names) - {_PART})
    unread = features_alone(without, rows.column_names, (label, group, participant, weight))
    rows, rest = rows.remove_columns(unread), [name for name in without if name not in unread]
    images = [column for column, feature in rows.features.items() if type(feature).__name__ == "Image"]
    if len(images) > 1:
        raise ValueError(f"{name} has several images a record, {', '.join(images)}: leave all but one out by without")
    if not images:
        return _from_table(rows, label, group, missing, participant, rest, numbers, asked, weight)
    columns = [label, group, _PART, *filter(None, (participant, weight))]
    whole = tidied(_frame(rows.select_columns(sorted(set(columns)))))
    refuse_hidden_labels(whole[label], whole[_PART])
    frame = complete(whole, missing)
    labels, groups = (codes(whole_numbers(frame[column]), column) for column in (label, group))
    data = GroupedDataset(
        x=_pixels(rows.select_columns(images).select(frame.index.tolist()), images[0], size),
        y=torch.tensor(labels.codes.astype("int64")), group=torch.tensor(groups.codes.astype("int64")),
        names=tuple(map(str, groups.categories)), classes=len(labels.categories),
        labels=tuple(map(str, labels.categories)))
    if participant:
        data = replace(data, participant=torch.tensor(pd.Categorical(frame[participant]).codes.astype("int64")))
    if weight:
        data = replace(data, weight=weights_of(frame[weight]))
    return replace(leave_out(data, rest), published=_published(frame[_PART]))


def _from_table(rows: Dataset, label: str, group: str, missing: Missing, participant: str | None,
                without: Sequence[str], numbers: Sequence[str] | None, asked: Asked, weight: str | None
                ) -> GroupedDataset:
    """Encode a data set without images."""
    frame = _frame(rows)
    reading = reading_of(frame.drop(columns=_PART), asked, names=(label, group, participant))
    tidy = tidied(frame, reading)
    refuse_hidden_labels(tidy[label], tidy[_PART])
    whole = frame.loc[complete(tidy, missing).index]
    settled = replace(asked, decimal=((ALL, reading.decimal), *reading.exceptions), quantities=reading.quantities)
    data = from_table(whole.drop(columns=_PART), label, group, missing, participant, without, numbers, settled,
                      weight=weight)
    if numbers is not None:  # what all parts together told is found, though it is settled for each
        read = data.encoding.reading._replace(found=found_in_rows(frame, replace(asked, numeric=tuple(numbers))))
        data = replace(data, encoding=data.encoding._replace(reading=read))
    return replace(data, published=_published(whole[_PART]))


def _rows(name: str) -> Dataset:
    """Return the records of all splits, one after the other, each with its part."""
    try:
        from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
        from flwr_datasets import FederatedDataset
    except ImportError as error:
        raise ValueError("data sets in Hugging Face's format need Flower Datasets: pip install 'fedfair[hf]'"
                         ) from error
    folder = Path(name)
    try:
        if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
            saved = load_from_disk(name)
            return _joined(DatasetDict(train=saved) if isinstance(saved, Dataset) else saved)["all"]
        if folder.is_dir():
            return _joined(load_dataset(name))["all"]
        hub, _, subset = name.partition("@")
        source = FederatedDataset(dataset=hub, subset=subset or None, partitioners={}, preprocessor=_joined,
                                  shuffle=False)
        return source.load_split("all")
    except OSError as error:
        raise FileNotFoundError(f"there is no folder {name}, and it could not be had from the Hugging Face hub "
                                f"({_first_line(error)}): check the name and the network") from error
    except ValueError as error:
        raise ValueError(f"{name} cannot be read as a data set in Hugging Face's format: {_first_line(error)}"
                         ) from error


def _joined(splits: DatasetDict) -> DatasetDict:
    """Join the splits that are parts into one, "all", with the part of each record; see `parts_of`."""
    from datasets import DatasetDict, concatenate_datasets

    parts = parts_of(list(splits))
    rows = [splits[name].add_column(_PART, [part] * len(splits[name])) for name, part in parts.items()]
    return DatasetDict(all=concatenate_datasets(rows))


def _frame(rows: Dataset) -> pd.DataFrame:
    """Return columns of single values as a table, classes by their names; raise `ValueError` for a column of lists."""
    for column, feature in rows.features.items():
        if type(feature).__name__ not in ("Value", "ClassLabel"):
            raise ValueError(f"column {column!r} holds {type(feature).__name__}, not one value for each record: remove "
                             "it")
    frame: pd.DataFrame = rows.with_format(None).to_pandas()
    for column, feature in rows.features.items():
        if type(feature).__name__ == "ClassLabel":
            frame[column] = frame[column].map(dict(enumerate(feature.names)))
    return frame


def _pixels(rows: Dataset, column: str, size: int | None) -> Images:
    """Return the images as bytes `[n, channels, height, width]`, grey if all are, and else RGB.

    Raises `ValueError` if they are not all of one size, or if some have more than 8 bits a channel, which bytes cannot
    hold.
    """
    modes = _modes(rows, column)
    if deep := sorted(mode for mode in modes if mode.startswith(("I", "F"))):
        raise ValueError(f"images of column {column!r} have more than 8 bits a pixel (mode {', '.join(deep)}): scale "
                         "them to 8 bits by the range that their values have, for all images alike, and save them so")
    return Images.written(_decoded(rows, column, "L" if modes <= _GREY else "RGB", size))


def _modes(rows: Dataset, column: str) -> set[str]:
    """Return the modes of a column's images, as Pillow calls them, by their first bytes; none is decoded for that."""
    from datasets import Image
    from PIL import Image as pillow

    modes = set()
    for place, row in enumerate(rows.cast_column(column, Image(decode=False)), 1):
        with _refused(place, column):
            coded = row[column] or {"bytes": b"", "path": None}
            with pillow.open(coded["path"] if coded["bytes"] is None else BytesIO(coded["bytes"])) as image:
                modes.add(image.mode)
    return modes


def _decoded(rows: Dataset, column: str, mode: str, size: int | None) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of each image of a column, `[channels, height, width]`; raise `ValueError` for another size."""
    first: tuple[int, ...] = ()
    for place in range(len(rows)):
        with _refused(place + 1, column):
            image = rows[place][column].convert(mode)
        pixels = np.array(image.resize((size, size)) if size else image)
        first = first or pixels.shape[:2]
        if pixels.shape[:2] != first:
            raise ValueError(f"the images of column {column!r} have different sizes, {first} and {pixels.shape[:2]}: "
                             "bring them to one")
        yield np.atleast_3d(pixels).transpose(2, 0, 1)


@contextmanager
def _refused(place: int, column: str) -> Iterator[None]:
    """Raise `ValueError` in place of the error of an image that is absent or broken."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"the image of record {place}, of those with a label, cannot be read from column {column!r}: "
                         "put the image there, or leave the record out") from error


def _published(part: pd.Series) -> Tensor:
    """Return the parts that the source published, or an empty tensor if it published no test part."""
    numbers = torch.tensor(part.to_numpy(dtype="int64"))
    return numbers if bool((numbers == PARTS.index("test")).any()) else numbers[:0]


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0].rstrip(".")
