"""CelebA (Liu et al. 2015): 202,599 faces of celebrities with binary attributes, 64 x 64 pixels here."""

from __future__ import annotations

from dataclasses import replace

from fedfair.datasets import hugging_face
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.published.download import data_folder

_NAME, _SIZE = "flwrlabs/celeba", 64
VARIANTS: dict[str, dict[str, int]] = {}


def load(group: str | None = None) -> GroupedDataset:
    """Load images `[n, 3, 64, 64]` as bytes; label 1 is Male, and a participant is a celebrity.

    The published parts are kept. `group` is one of the binary attributes, by default Eyeglasses as in Esipova et al.
    2023. The data come from FEDFAIR_DATA_DIR, if that is set and has a folder celeba in Hugging Face's format, and else
    from the hub. Raises as `hugging_face.load` does.
    """
    attribute = group or "Eyeglasses"
    source = data_folder("celeba") or _NAME
    data = hugging_face.load(str(source), "Male", attribute, participant="celeb_id", size=_SIZE)
    return replace(data, names=(f"without {attribute}", f"with {attribute}"))
