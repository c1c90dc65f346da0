"""Finished runs in one parquet file, to which a reproduction adds them one by one, and from which it reads them back.

A row is a run: its `settings` as JSON, its `metrics` (round, split, group, metric, value), and as JSON its `ledger` and
the `points` of a curve, those of them that it has; the `seconds` that it took; and the `version` of the program that
made it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from simulations.files.atomic_files import in_json, in_place
from simulations.results.environment import program_version
from simulations.settings.experiment import identity_of

RUNS = "runs.parquet"
"""The name of such a file in its folder."""

_METRIC = pa.struct([("round", pa.int64()), ("split", pa.string()), ("group", pa.string()), ("metric", pa.string()),
                     ("value", pa.float64())])
_COLUMNS = pa.schema([("settings", pa.string()), ("metrics", pa.list_(_METRIC)), ("ledger", pa.string()),
                      ("points", pa.string()), ("seconds", pa.float64()), ("version", pa.string())])
_LATER = ("seconds", "version")  # columns that older files do not have


def run_key(settings: Mapping[str, Any]) -> str:
    """Return the identity of a run (see `identity_of`), which may have settings besides an experiment's, as text."""
    return json.dumps(identity_of(json.loads(in_json(settings))), sort_keys=True)


class RunFile:
    """The runs of the file at `path`, or, if it is None, of memory alone.

    `begin` is called before the file is first written. One process at a time may add runs (see
    `simulations.files.atomic_files.alone_in`). Raises `ValueError` for a file that holds something else, and
    `OSError` if it cannot be read.
    """

    def __init__(self, path: Path | None, begin: Callable[[], None] = lambda: None) -> None:
        self.path, self._begin = path, begin
        self._rows: dict[str, pa.Table] = {}
        if path is not None and path.exists():
            table = _read(path)
            for place, settings in enumerate(table["settings"].to_pylist()):
                self._rows[run_key(json.loads(settings))] = table.slice(place, 1)

    def find(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what is kept of the run with these settings, by column, or None if it is not there.

        Settings that did not exist when it was run must have their defaults.
        """
        row = self._rows.get(run_key(settings))
        if row is None:
            return None
        columns = {name: json.loads(row[name][0].as_py() or "null") for name in ("settings", "ledger", "points")}
        columns.update({name: row[name][0].as_py() for name in _LATER})
        return {**columns, "metrics": pa.Table.from_struct_array(row["metrics"].combine_chunks().flatten()).to_pandas()}

    def versions(self, of: Iterable[Mapping[str, Any]] | None = None) -> str:
        """Say which versions of the program made the runs with some settings, by default all of them."""
        rows = self._rows.values() if of is None else [self._rows[run_key(settings)] for settings in of]
        known = {row["version"][0].as_py() or "of a version that was not kept" for row in rows}
        return f"Runs of fedfair {' and '.join(sorted(known))}." if known else ""

    def add(self, settings: Mapping[str, Any], metrics: pd.DataFrame | None = None,
            ledger: Mapping[str, Any] | None = None, points: list[Any] | None = None) -> None:
        """Keep a run, in place of one with the same identity, and save the file.

        Raises `OSError` if it cannot be written; then the old one stays.
        """
        self.hold(settings, metrics, ledger, points)
        self.save()

    def hold(self, settings: Mapping[str, Any], metrics: pd.DataFrame | None = None,
             ledger: Mapping[str, Any] | None = None, points: list[Any] | None = None, seconds: float | None = None
             ) -> None:
        """Keep a run in memory, in place of one with the same identity, until `save`."""
        frame = None if metrics is None else metrics[_METRIC.names].to_dict("records")
        texts = [None if value is None else in_json(value) for value in (settings, ledger, points)]
        row = dict(zip(("settings", "ledger", "points"), texts, strict=True))
        self._rows[run_key(settings)] = pa.Table.from_pylist(
            [{**row, "metrics": frame, "seconds": seconds, "version": program_version()}], _COLUMNS)

    def save(self) -> None:
        """Write the file anew, and replace the old one as a whole.

        Raises `OSError` if it cannot be written; then the old one stays.
        """
        if self.path is None or not self._rows:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self._begin()
        with in_place(self.path) as new:
            rows = pa.concat_tables(self._rows[name] for name in sorted(self._rows))  # equal runs, equal files
            pq.write_table(rows.combine_chunks(), new, compression="zstd")


def _read(path: Path) -> pa.Table:
    """Return the rows of a file; see `RunFile` for what is raised."""
    try:
        table = pq.read_table(path)
        for name in set(_LATER) - set(table.column_names):
            table = table.append_column(name, pa.nulls(len(table), _COLUMNS.field(name).type))
        return table.select(_COLUMNS.names).cast(_COLUMNS)
    except (pa.ArrowInvalid, KeyError) as error:
        raise ValueError(f"{path} holds no runs that this version can read ({error}): restore it, or remove it to make "
                         "all runs again") from None
