"""What is asked of a reproduction: how much of it, on which device, and where its runs are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedfair.registry import unknown
from simulations.files import refuse_unwritable


class Request(NamedTuple):
    """How many `seeds` (the reproduction's own number if None), whether the `quick` version, which of its `datasets`
    (all if none is named), on which `device`, and the folder of kept `runs` (one of its own if None).
    """

    seeds: int | None = None
    quick: bool = False
    datasets: tuple[str, ...] = ()
    device: str = "cpu"
    runs: Path | None = None

    def kept_in(self, out: Path) -> Path:
        """The folder of its runs: one in `out`, unless one is named, which reproductions with the same runs can share.

        Raises `OSError` if it could not be written.
        """
        folder = self.runs or out / "runs"
        refuse_unwritable(folder)
        return folder

    def among(self, datasets: Sequence[str]) -> tuple[str, ...]:
        """Those of a reproduction's data sets that are asked for, in its order; raises `ValueError` for another."""
        for name in self.datasets:
            if name not in datasets:
                raise unknown("data set of the quick version" if self.quick else "data set", name, datasets)
        return tuple(name for name in datasets if name in self.datasets or not self.datasets)

    def command(self, name: str, seeds: int) -> str:
        """The command that does it again, with so many seeds."""
        chosen = f" --datasets {','.join(self.datasets)}" if self.datasets else ""
        return (f"fedfair reproduce {name} --seeds {seeds}{' --quick' if self.quick else ''}{chosen} "
                f"--device {self.device} --out DIR")

    def left_out(self, quick: str) -> list[str]:
        """Paragraphs that say what is not there, `quick` being what the reproduction says of its quick version."""
        return [*([f"This is the quick version. {quick}", ""] if self.quick else []),
                *([f"Of the data sets only {', '.join(self.datasets)}.", ""] if self.datasets else [])]


EVERYTHING = Request()
