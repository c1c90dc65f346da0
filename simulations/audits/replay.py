"""An audit by replay: a fit again on neighbours of its table, with every noisy result as it was on the table itself.

After that nothing may differ: not a byte of the folder, not a line of the log, not whether there is a folder. And what
went into the releases may differ by no more than the printed epsilon says (by twice as much where the row is another
one). This finds what no attack on the noise can: records that leave by another way, such as an exact number, or a row
that decides how others are read ("Re:cord-play", arXiv 2602.17454, which found such leaks in twelve libraries).
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedfair.accounting import Release, epsilon
from fedfair.accounting.figures import up
from fedfair.mechanisms.marks import attached
from simulations.audits.neighbour_files import Neighbour, neighbours
from simulations.drawing.table import Table
from simulations.fitting.fit import Wanted, fit
from simulations.fitting.save import save

_EXACT = ("values", "counts", "sums")
"""Names of what goes into a release, in the functions that are marked."""
_SHOWN = 60  # signs of a line
_ROUNDING = 1e-6
"""By which sums of numbers in floating point may be off, relative to the noise."""


class Heard(NamedTuple):
    """A release: its name, what went in by name, the deviation of its noise, and what came out."""

    name: str
    exact: Mapping[str, torch.Tensor]
    deviation: float
    out: Any


@dataclass
class Tape:
    """The releases of a run, in their order.

    Attributes:
        releases: What was heard.
        before: Releases of another run, which are returned again in place of new ones; None to record.
        moved: Sum of the squared distances between what went in and what had gone in before, in deviations of noise.
    """

    releases: list[Heard] = field(default_factory=list)
    before: list[Heard] | None = None
    moved: float = 0.0

    def __call__(self, name: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Record a release, or return the one that was made in its place before."""
        exact = next(inputs[key] for key in _EXACT if key in inputs)
        heard = Heard(name, {key: torch.as_tensor(value, dtype=torch.float64).clone() for key, value in exact.items()},
                      float(inputs["deviation"]), None)
        if self.before is None:
            heard = heard._replace(out=compute())
        elif len(self.releases) < len(self.before) and self.before[len(self.releases)].name == name:
            earlier = self.before[len(self.releases)]
            heard = heard._replace(out=earlier.out)
            self.moved += _distance(heard, earlier) ** 2
        else:
            heard = heard._replace(out=compute())
            self.moved = float("inf")
        self.releases.append(heard)
        return heard.out


def _distance(one: Heard, other: Heard) -> float:
    """Return how far apart what went into two releases is, in deviations of their noise; a name that is not there is 0.

    Infinite for other shapes or other noise, which tell of the records by themselves.
    """
    if one.deviation != other.deviation:
        return float("inf")
    total = 0.0
    for name in {*one.exact, *other.exact}:
        left, right = (heard.exact.get(name) for heard in (one, other))
        if left is not None and right is not None and left.shape != right.shape:
            return float("inf")
        there = left if left is not None else right
        assert there is not None
        zeros = torch.zeros_like(there)
        total += float(((zeros if left is None else left) - (zeros if right is None else right)).square().sum())
    return 0.0 if total == 0 else total**0.5 / one.deviation if one.deviation else float("inf")


class Finding(NamedTuple):
    """Something that tells of a record: on which neighbour, where, and what it was on the table and on the other."""

    neighbour: str
    where: str
    table: str
    other: str


@dataclass(frozen=True)
class ReplayAudit:
    """What an audit by replay found.

    Attributes:
        neighbours: Number of neighbours of the table that were tried.
        findings: What differs, besides the releases.
        epsilon: The largest epsilon that releases cost, by how far a record moved what went into them.
        claimed: Epsilon that was asked for.
    """

    neighbours: int
    findings: tuple[Finding, ...]
    epsilon: float
    claimed: float

    def table(self) -> Table:
        """Lay out what was found: a row for each neighbour and file."""
        first: dict[tuple[str, str], Finding] = {}
        for finding in self.findings:
            first.setdefault((finding.neighbour, finding.where.partition(":")[0]), finding)
        rows = [(finding.neighbour, finding.where, finding.table[:_SHOWN], finding.other[:_SHOWN])
                for finding in first.values()]
        verdict = "REFUTED" if self.refuted else "not refuted"
        return Table(title=f"A fit again on {self.neighbours} neighbours of the table, with the same noisy results: "
                           f"{verdict}", columns=("neighbour", "where", "on the table", "on the neighbour"), rows=rows,
                     caption=f"One row moves what goes into all releases by what costs epsilon "
                             f"{up(self.epsilon, '.3g')}, of {self.claimed:g} that are claimed. Anything else that "
                             f"differs stands above: {len(rows)}.")

    def to_dict(self) -> dict[str, Any]:
        """Return all findings as plain values."""
        return {"neighbours": self.neighbours, "epsilon": self.epsilon, "claimed": self.claimed,
                "refuted": self.refuted, "findings": [finding._asdict() for finding in self.findings]}

    @property
    def refuted(self) -> bool:
        """Whether anything but the releases tells of a record, or they tell more than is claimed."""
        return bool(self.findings) or self.epsilon > self.claimed * (1 + _ROUNDING)


def replay(wanted: Wanted, seed: int = 0) -> ReplayAudit:
    """Audit a fit of a file of text or Parquet by replay.

    Args:
        wanted: The fit, whose data are the path of a file.
        seed: Decides which rows are changed.

    Raises:
        ValueError: If the file cannot be fitted, or is of another format.
    """
    wanted = replace(wanted, settings={"seed": seed, **wanted.settings})
    first = Tape()
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "table"
        own.mkdir()
        table, *others = neighbours(Path(str(wanted.data)), own, wanted.label, wanted.group, seed)
        expected, delta = _all_that_leaves(wanted, table, first)
        findings, cost = [], 0.0
        for other in others:
            again = Tape(before=first.releases)
            left, _ = _all_that_leaves(wanted, other, again)
            findings += [Finding(other.name, where, expected.get(where, "nothing"), left.get(where, "nothing"))
                         for where in sorted({*expected, *left}) if expected.get(where) != left.get(where)]
            cost = max(cost, _cost(again.moved / other.steps**2, delta))
    return ReplayAudit(len(others), tuple(findings), cost, wanted.epsilon)


def _cost(moved: float, delta: float) -> float:
    """Return the epsilon of Gaussian releases without sampling whose inputs moved by so much, squared, together."""
    if moved == 0:
        return 0.0
    return epsilon(Counter([Release(1.0, moved**-0.5)]), delta) if moved < float("inf") else float("inf")


def _all_that_leaves(wanted: Wanted, table: Neighbour, tape: Tape) -> tuple[dict[str, str], float]:
    """Return each line that a fit of a table writes or says, by its place, and the delta of the fit."""
    lines: dict[str, str] = {}
    log = _Lines()
    root = logging.getLogger()
    root.addHandler(log)
    delta = wanted.delta or 1e-6
    try:
        with attached(tape), tempfile.TemporaryDirectory() as folder:
            fitted = fit(replace(wanted, data=table.path))
            delta = fitted.result.ledger.delta
            save(fitted, Path(folder) / "out")
            for file in sorted((Path(folder) / "out").iterdir()):
                lines |= {f"{file.name}:{number}": line for number, line in enumerate(_text(file), 1)}
    except Exception as error:  # whatever it is, that there is one may tell of a row
        lines["refusal"] = f"{type(error).__name__}: {error}"
    finally:
        root.removeHandler(log)
    said = {f"log:{number}": line for number, line in enumerate(log.lines, 1)}
    return {**lines, **said}, delta


def _text(file: Path) -> Iterator[str]:
    """Yield the lines of a file; of one that is no text, its bytes."""
    content = file.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        yield content.hex()
        return
    yield from text.splitlines()


class _Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())
