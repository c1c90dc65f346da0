"""Checkpoints: a run that was stopped at any moment resumes after its last one, as if it had never stopped.

Every draw is a function of (seed, purpose, client, step), so the rounds after the checkpoint that are run again release
the same values again: that is one release, and the ledger, which is part of the checkpoint, counts it once. (On another
machine the last bits of these values may differ.)

With randomness from the operating system these rounds have other noise when they are run again, and somebody may have
seen both. Such a run is saved before its first round and after every round. When it resumes, the round that may be lost
is charged, and the charge is saved before the round is asked for again. The release of private preprocessing is charged
and kept likewise (`simulations.engines.resume`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import tomli_w
import torch

from simulations.files.file_seal import has_changed, seal
from simulations.results.result_folder import (
    CHECKPOINT,
    CHECKPOINT_TO_BE,
    refuse_to_replace,
    replaced,
    same_identity,
)

_FORMAT = 8  # what a file holds; changes with `strategies.server.state`


@dataclass(frozen=True)
class Checkpoint:
    """A run's checkpoints: in the folder that its result will be saved in, with a number of rounds between them.

    `settings` are the experiment's. A checkpoint holds them, and a seal of the CSV file, so that no run resumes from
    another's. `every` is by default 100 rounds of one step, or a single local epoch, and more where checkpoints
    would else take over 2 % of the time.
    """

    folder: Path
    settings: Mapping[str, Any]
    every: int | None = None

    @property
    def file(self) -> Path:
        """The file of the latest checkpoint; saving the result removes it."""
        return self.folder / CHECKPOINT

    def read(self) -> tuple[int, dict[str, Any]] | None:
        """Return the rounds done and the strategy's state after them, if there is a checkpoint.

        Raises `FileExistsError` if the folder holds something else, another `OSError` if nothing could be saved there,
        and `ValueError` if the file is damaged, another version's or another run's.
        """
        refuse_to_replace(self.folder, self.settings)
        if not self.file.exists():
            return None
        try:
            saved = torch.load(self.file, weights_only=True)
        except (RuntimeError, UnpicklingError, EOFError) as error:
            raise ValueError(f"{self.file} is damaged: remove it to start the run again ({error})") from None
        if saved.get("format") != _FORMAT:
            raise ValueError(f"{self.file} was written by another version of fedfair: go on with that one, or remove "
                             "it to start the run again")
        if not same_identity(saved["settings"], self.settings):
            raise ValueError(f"{self.file} was written by a run with other settings, at the same time: remove it to "
                             "start this run again, and give each run a folder of its own")
        if self._csv and has_changed(self._csv, saved["csv"]):
            raise ValueError(f"{self.settings['csv']} has changed since {self.file} was written: restore it, or take "
                             "another folder")
        return saved["round"], saved["state"]

    @cached_property
    def _settings(self) -> str:
        """The settings as config.toml has them."""
        return tomli_w.dumps(dict(self.settings))

    @property
    def _csv(self) -> Path | None:
        """The CSV file; None if there is none, or not on this machine."""
        csv = Path(str(self.settings.get("csv", "")))
        return csv if csv.is_file() else None

    @cached_property
    def _seal(self) -> str:
        """The seal of the CSV file as it was first saved; empty if there is none."""
        return seal(self._csv) if self._csv else ""

    def write(self, done: int, saved: Mapping[str, Any]) -> None:
        """Replace the latest checkpoint, as a whole.

        Raises `FileExistsError` if the folder holds something else by now, another `OSError` if it cannot be written,
        and then keeps the latest; `ValueError` if it could not be read again.
        """
        refuse_to_replace(self.folder, self.settings)
        if not (self.folder / "config.toml").exists():
            with replaced(self.folder) as new:
                (new / "config.toml").write_text(self._settings, encoding="utf-8")
        new = self.folder / CHECKPOINT_TO_BE
        try:
            with new.open("wb") as file:
                torch.save({"format": _FORMAT, "round": done, "state": saved, "settings": self._settings,
                            "csv": self._seal}, file)
                file.flush()
                os.fsync(file.fileno())
            torch.load(new, weights_only=True)
            new.replace(self.file)
        except UnpicklingError as error:
            new.unlink()
            raise ValueError("a checkpoint holds plain values and tensors, but the strategy's `state` names something "
                             f"else ({error})") from None
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            new.unlink(missing_ok=True)
            raise OSError(f"the checkpoint after round {done} could not be written to {self.folder}, is the disk full? "
                          f"The run stopped; run it again to go on after the last one ({error})") from None
