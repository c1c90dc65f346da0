"""The audit of the result folder: is anything in it a function of one training record that no noise hides?

The attacker has the folder and knows two data sets that differ in one training record, but not which of them was
trained on. It looks for two kinds of entries:

- fixed: the same in every run on one data set, and another in every run on the other. Hashes, means and deviations,
  names of categories and counts are of this kind.
- exact: in every run equal to what the attacker measures on the training part of the data set that was used, with the
  weights of that round, and not equal to what it measures on the other. Losses, accuracies and norms are of this kind.

Noise hides neither, so a single finding of either kind refutes any epsilon. What carries noise is left to other audits.

All that a folder says, as single entries: every value of every file, and the size of every file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from fedfair.datasets import Parts
from fedfair.fairness.metrics import metrics
from fedfair.node.node import Node
from fedfair.plugins.text_values import from_json, read_toml
from simulations.audits.neighbours import neighbours
from simulations.engines.run import Progress, run
from simulations.files.saved_files import saved_weights
from simulations.settings.experiment import Experiment
from strategies.server.rounds import Rounds

Entry = float | str
"""The value of an entry."""

Named = Iterator[tuple[str, Entry]]


def entries(folder: Path) -> dict[str, Entry]:
    """Return every value in a folder by where it stands: numbers as numbers, all else as text.

    Returns:
        Entries by "file/place".
    """
    found: dict[str, Entry] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            found[f"{name}/size"] = float(path.stat().st_size)
            found.update({f"{name}/{place}": value for place, value in _READERS.get(path.suffix, _plain)(path)})
    return found


def _plain(path: Path) -> Named:
    """Yield the bytes of a file as one text."""
    yield "content", path.read_bytes().decode("latin-1")


def _leaves(value: Any, place: str = "") -> Named:
    """Yield the values of nested tables and lists."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, f"{place}/{name}" if place else str(name))
    elif isinstance(value, list):
        yield f"{place}/length", float(len(value))
        for number, part in enumerate(value):
            yield from _leaves(part, f"{place}/{number}")
    else:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        yield place, float(value) if is_number else str(value)


def _cells(table: pd.DataFrame) -> Named:
    """Yield the cells of a table: numbers that are measured by the other cells of their row, not by its number."""
    measured = table.select_dtypes("float")
    names = table.drop(columns=measured.columns)
    yield "columns", ", ".join(map(str, table.columns))
    for key, row in zip(names.itertuples(index=False), measured.itertuples(index=False), strict=True):
        for column, value in zip(measured.columns, row, strict=True):
            yield f"{'/'.join(map(str, key))}/{column}", float(value)


def _safetensors(path: Path) -> Named:
    """Yield the numbers of a model, and what describes it."""
    with saved_weights(path) as saved:
        for name, text in (saved.metadata() or {}).items():
            yield from _leaves(json.loads(text), f"description/{name}")
        for name in saved.keys():  # noqa: SIM118 - no mapping
            yield from ((f"{name}/{place}", value) for place, value in enumerate(
                saved.get_tensor(name).double().flatten().tolist()))


_READERS: Mapping[str, Callable[[Path], Named]] = {
    ".json": lambda path: _leaves(from_json(path.read_bytes())),
    ".toml": lambda path: _leaves(read_toml(path)),
    ".csv": lambda path: _cells(pd.read_csv(path)), ".parquet": lambda path: _cells(pd.read_parquet(path)),
    ".safetensors": _safetensors}


Figures = dict[tuple[int, str, str], float]
"""What is measured on training records, by round, group and metric."""


class Leak(NamedTuple):
    """An entry that says which of the two data sets was used.

    Attributes:
        entry: Where it stands, "file/place".
        kind: "fixed", or "exact".
        detail: Its values with and without the target, or what it equals.
    """

    entry: str
    kind: Literal["fixed", "exact"]
    detail: str


@dataclass(frozen=True)
class FolderAudit:
    """What an audit of folders found.

    Attributes:
        experiment: What was run.
        target: Row of the training record that one data set has and the other has not.
        runs: Number of runs on each of the two.
        guarantee: Guarantee that the ledgers state.
        entries: Number of entries in a run's folder.
        leaks: The findings.
    """

    experiment: Experiment
    target: int
    runs: int
    guarantee: str
    entries: int
    leaks: tuple[Leak, ...]

    @property
    def refuted(self) -> bool:
        """Whether a folder that is called proved reveals the target."""
        return bool(self.leaks) and self.guarantee == "proved"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the verdict, ready for JSON."""
        return {"attack": "folder", "experiment": self.experiment.settings(), "target": self.target, "runs": self.runs,
                "guarantee": self.guarantee, "entries": self.entries, "refuted": self.refuted,
                "leaks": [leak._asdict() for leak in self.leaks]}


def audit_folder(experiment: Experiment, runs: int = 10, target: int | None = None,
                 progress: Progress = lambda *_: None) -> FolderAudit:
    """Run an experiment on two neighbouring data sets, save all results, and look for what tells them apart.

    Args:
        experiment: What to run, on the engine "local"; a short run does.
        runs: Number of runs on each data set, at least 8: with fewer, accuracies of few records look fixed by
            chance.
        target: Row of a training record in the source; None for the most unusual one.
        progress: Called with the runs done and all runs.

    Returns:
        The findings.

    Raises:
        ValueError: For fewer than 8 runs, a target that is not in the training part, and what `run` raises.
    """
    if runs < 8:
        raise ValueError(f"runs is {runs}: take at least 8, so that no entry looks fixed by chance")
    chosen = neighbours(experiment, target)
    seen: dict[bool, list[_Seen]] = {}
    guarantee = ""
    with TemporaryDirectory(prefix="fedfair-audit-") as name:
        folder = Path(name)
        data = {}
        for without in (False, True):
            with chosen.world(without, folder) as made:
                data[without] = made.task.data()
        for without in (False, True):
            with chosen.world(without, folder) as made:
                seen[without] = [_Seen(data[without], data[not without]) for _ in range(runs)]
                for done, each in enumerate(seen[without]):
                    result = run(made, watch=each.watch)
                    guarantee = result.ledger.guarantee
                    each.entries = entries(result.save(folder / "result"))
                    progress(without * runs + done + 1, 2 * runs)
    found = (*_fixed(seen[False], seen[True]), *_exact([*seen[False], *seen[True]]))
    return FolderAudit(experiment, chosen.target, runs, guarantee, len(seen[False][0].entries), found)


@dataclass
class _Seen:
    """One run as the attacker sees it: the folder's entries, and its own figures of both training parts."""

    used: Parts
    unused: Parts
    entries: Mapping[str, Entry] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)
    others: Figures = field(default_factory=dict)

    def watch(self, rounds: Rounds, now: int) -> None:
        """Measure both training parts with the weights of a round that was evaluated."""
        if rounds.rows.latest(now):
            for parts, figures in ((self.used, self.figures), (self.unused, self.others)):
                figures.update(_measured(parts, rounds, now))


def _measured(parts: Parts, rounds: Rounds, now: int) -> Figures:
    """Return all figures of a training part that fedfair can measure."""
    node = Node({0: parts}, rounds.task.build_model(), "cpu")
    weights: Mapping[str, Tensor] = rounds.method.descent.weights
    counts = node.evaluate(weights, "train", gradient_norms=True)
    return {(now, group, metric): value for group, metric, value in metrics(counts, parts.train.names)}


def _fixed(used: Sequence[_Seen], unused: Sequence[_Seen]) -> Iterator[Leak]:
    """Yield the entries that are the same in all runs on one data set, and others in those on the other."""
    names = {name for each in (*used, *unused) for name in each.entries}
    for name in sorted(names):
        ours, theirs = ({repr(each.entries.get(name)) for each in runs} for runs in (used, unused))
        if len(ours) == len(theirs) == 1 and ours != theirs:
            yield Leak(name, "fixed", f"{ours.pop()} with the target, {theirs.pop()} without")


def _exact(seen: Sequence[_Seen]) -> Iterator[Leak]:
    """Yield the entries that equal a figure of the training part that was used, and not always that of the other."""
    names = [name for name in seen[0].entries if all(isinstance(each.entries.get(name), float) for each in seen)]
    keys = [key for key in seen[0].figures if all(key in each.figures for each in seen)]
    values = np.array([[each.entries[name] for name in names] for each in seen], dtype=float)
    for key in keys:
        ours, theirs = (np.array([figures[key] for figures in of]) for of in (
            [each.figures for each in seen], [each.others for each in seen]))
        round_, group, metric = key
        for place in np.flatnonzero(_equal(values, ours) & ~_equal(values, theirs)):
            yield Leak(names[place], "exact", f"{metric} of {group} on the training part after round {round_}")


def _equal(values: npt.NDArray[np.float64], figures: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which entries `[runs, n]` equal a figure `[runs]` in all runs, but for rounding: `[n]`."""
    return np.asarray(np.isclose(values, figures[:, None], rtol=1e-6, atol=1e-12).all(0))
