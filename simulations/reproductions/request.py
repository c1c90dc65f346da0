"""A request for a reproduction: how much of it, on which device, and where its runs are kept."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tomli_w

from fedfair.plugins.registry import unknown
from simulations.files.atomic_files import refuse_unwritable, write_text
from simulations.results.result_folder import refuse_other


class Request(NamedTuple):
    """How many `seeds` (the reproduction's own number if None), whether the `quick` version, which of its `datasets`
    (all if none is named), on which `device`, and the folder of kept `runs` (that of the page if None).
    """

    seeds: int | None = None
    quick: bool = False
    datasets: tuple[str, ...] = ()
    device: str = "cpu"
    runs: Path | None = None

    def begin(self, name: str, out: Path) -> Path:
        """Make `out` the folder of the reproduction `name`, by a config.toml that says so, and return the folder of its
        runs: `out` itself, unless one is named, which reproductions with the same runs can share.

        Raises `FileExistsError` if `out` holds something else, and another `OSError` if `out` or the folder of the runs
        cannot be written; then nothing is changed.
        """
        described, runs = {"reproduction": name}, self.runs or out
        refuse_other(out, described)
        refuse_unwritable(runs)
        write_text(out / "config.toml", tomli_w.dumps(described))
        return runs

    def among(self, datasets: Sequence[str]) -> tuple[str, ...]:
        """Return the requested data sets of a reproduction, in its order; raise `ValueError` for an unknown one."""
        for name in self.datasets:
            if name not in datasets:
                raise unknown("data set of the quick version" if self.quick else "data set", name, datasets)
        return tuple(name for name in datasets if name in self.datasets or not self.datasets)

    def title(self, title: str) -> str:
        """Return a page's title with what it is limited to before a colon: some data sets, the quick version."""
        subject, colon, rest = title.partition(":")
        datasets = "".join(f", {name}" for name in self.datasets)
        return f"{subject}{datasets}{' (quick version)' if self.quick else ''}{colon}{rest}"

    def command(self, name: str, seeds: int | None) -> str:
        """Return the command that makes it again, with a number of seeds; None for the reproduction's own."""
        chosen = f" --datasets {shlex.quote(','.join(self.datasets))}" if self.datasets else ""
        number = "" if seeds is None else f" --seeds {seeds}"
        return (f"fedfair reproduce {name}{number}{' --quick' if self.quick else ''}{chosen} "
                f"--device {self.device} --out DIR")

    def left_out(self, quick: str) -> list[str]:
        """Return paragraphs that say what is left out; `quick` describes the reproduction's quick version."""
        return [*([f"This is the quick version. {quick}", ""] if self.quick else []),
                *([f"Of the data sets only {', '.join(self.datasets)}.", ""] if self.datasets else [])]


EVERYTHING = Request()
