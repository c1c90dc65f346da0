"""An audit by replay: a program again on neighbours of its table, with every noisy result as it was on the table.

After that nothing may differ: not a byte of what it writes or leaves in the cache, not a line of the log, not whether
it refuses. And what went into the releases may differ by no more than the printed epsilon says (by twice as much where
the row is another one). Noise has to be what it is said to be (`simulations.audits.tape`), each release in the ledger.
Who is in a batch is as secret as a record: on the table itself once more, with nobody in the batch of the first step
and the same noisy results, nothing may differ either, nor how much noise there is, nor what goes into later releases.
This finds what no attack on the noise can: records that leave by another way, such as an exact number, or a row that
decides how others are read ("Re:cord-play", arXiv 2602.17454, which found such leaks in twelve libraries).
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedfair.accounting.figures import up
from fedfair.datasets.files.in_memory import files_of_this_process
from fedfair.mechanisms.marks import attached
from simulations.audits.neighbour_files import Neighbour, neighbours
from simulations.audits.tape import Moved, Tape, doubts, made
from simulations.drawing.table import Table
from simulations.engines.run import Progress

_SHOWN = 60  # signs of a line
_FAR = 1e6  # deviations of noise, beyond which noise hides nothing
_ROUNDING = 1e-6
"""By which sums of numbers in floating point may be off, relative to the noise."""


class Left(NamedTuple):
    """What a program left besides its files.

    Attributes:
        claimed: Epsilon that was asked for, or that it prints.
        cost: Computes the epsilon of all releases, in their order, from how far a record moves what goes into each.
        public: Numbers that are public by assumption, by name: tables that differ in them are no neighbours.
        lines: Anything else that it let others see, by where: messages.
        spent: Epsilon of its ledger.
        listed: Number of releases that its ledger lists; None where it lists what they cost together.
        sampled: Number of rounds whose batches its ledger takes for Poisson's.
        fresh: Whether it says that nobody can know its noise, so that it has to be another each time.
        refusals: Errors of which the owner of a table alone hears, as that a value cannot be read; tables that raise
            one before anything was released are no neighbours.
        logs: Whether others see the log: a node's stays with it.
    """

    claimed: float
    cost: Callable[[list[Moved]], float]
    public: Mapping[str, int] = {}
    lines: Mapping[str, str] = {}
    spent: float = 0.0
    listed: int | None = None
    sampled: int = 0
    fresh: bool = False
    refusals: tuple[type[Exception], ...] = ()
    logs: bool = True


Program = Callable[[Path, Path], Left]
"""Reads the table at a path, and writes all that leaves into a folder that is not there yet."""


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
        program: What was audited, in words.
        neighbours: Number of neighbours of the table that were tried.
        others: Number of tables that were tried too, but are no neighbours, since what is public tells them apart.
        findings: What differs, besides the releases.
        epsilon: The largest epsilon that releases cost, by how far a record moved what went into them.
        claimed: Epsilon that was claimed.
    """

    program: str
    neighbours: int
    others: int
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
        unseen = "" if self.epsilon else " No changed row was in any release: more steps, or rows, would show more."
        others = (f" {self.others} more tables are no neighbours: public numbers differ, or they are refused before "
                  "anything is released.") if self.others else ""
        return Table(title=f"{self.program} again on {self.neighbours} neighbours of the table, with the same noisy "
                           f"results: {verdict}", columns=("neighbour", "where", "on the table", "on the neighbour"),
                     rows=rows,
                     caption=f"One row moves what goes into all releases by what costs epsilon "
                             f"{up(self.epsilon, '.3g')}, of {self.claimed:g} that are claimed. Anything else that "
                             f"differs stands above: {len(rows)}.{unseen}{others}")

    def to_dict(self) -> dict[str, Any]:
        """Return all findings as plain values."""
        return {"program": self.program, "neighbours": self.neighbours, "others": self.others, "epsilon": self.epsilon,
                "claimed": self.claimed, "refuted": self.refuted,
                "findings": [finding._asdict() for finding in self.findings]}

    @property
    def refuted(self) -> bool:
        """Whether anything but the releases tells of a row, or they tell more than is claimed."""
        return bool(self.findings) or self.exceeds

    @property
    def exceeds(self) -> bool:
        """Whether the releases tell more of a row than is claimed."""
        return self.epsilon > self.claimed * (1 + _ROUNDING)


def replay(program: Program, file: Path, label: str, group: str, seed: int = 0, name: str = "A program",
           progress: Progress = lambda *_: None) -> ReplayAudit:
    r"""Audit a program that reads a file of text, Parquet, JSON or a workbook by replay.

    Its noise has to go through functions that are marked (`fedfair.mechanisms.marks`), and all else has to be the same
    when it runs again: batches that are drawn have to follow from a seed.

    Args:
        program: The program; see `simulations.audits.replayed` for those of fedfair.
        file: The table.
        label: Column of the label.
        group: Column of the group.
        seed: Decides which rows are changed.
        name: What the program is, in words.
        progress: Called with the number of tables that it ran on, and of all.

    Raises:
        ValueError: If the program refuses the table itself, or the file is of another format.

    Examples:
        >>> from fedfair.mechanisms.noise import add_noise
        >>> from fedfair.mechanisms.randomness import source
        >>> def count(table: Path, folder: Path) -> Left:
        ...     rows = {"rows": torch.tensor(float(len(table.read_text().split("\n"))))}
        ...     folder.mkdir()
        ...     released = add_noise("gaussian", rows, 1.0, source(0))
        ...     (folder / "count.txt").write_text(str(released))
        ...     return Left(1.0, lambda moved: max(distance for _, distance in moved))
        >>> _ = Path("own.csv").write_text("n,sex,y\n" + "1,f,no\n2,m,yes\n" * 9)
        >>> replay(count, Path("own.csv"), "y", "sex").refuted
        False
    """
    first = Tape()
    with tempfile.TemporaryDirectory() as folder:
        table, *others = neighbours(file, Path(folder), label, group, seed)
        expected, claim = _all_that_leaves(program, table, first)
        if isinstance(claim, Exception):
            raise ValueError(f"the table itself is refused, so there is nothing to compare: {expected['refusal']}")
        findings, costs, tried = [*_of_the_table(program, table, first, claim)], [0.0], 0
        findings += _of_the_batches(program, table, first, expected)
        for done, other in enumerate(others, 1):
            progress(done, 1 + len(others))
            again = Tape(before=first.releases)
            lines, left = _all_that_leaves(program, other, again)
            if _is_no_neighbour(claim, left, again):
                continue
            tried += 1
            findings += _differing(other.name, expected, lines)
            moved = [Moved(name, distance / other.steps) for name, distance in again.moved]
            if any(distance for _, distance in moved):
                costs.append(claim.cost(moved) if all(distance < _FAR for _, distance in moved) else math.inf)
        progress(1 + len(others), 1 + len(others))
    return ReplayAudit(name, tried, len(others) - tried, tuple(findings), max(costs), claim.claimed)


def _of_the_table(program: Program, table: Neighbour, tape: Tape, claim: Left) -> Iterator[Finding]:
    """Yield what the releases on the table alone show to be wrong."""
    again = Tape()
    if claim.fresh:
        _all_that_leaves(program, table, again)
    for where, what in doubts(tape.releases, again.releases):
        yield Finding(table.name, where, what, "")
    number = made(tape.releases)
    if claim.listed not in (None, number):
        yield Finding(table.name, "ledger", f"lists {claim.listed} releases of {number}", "")
    if claim.sampled > tape.batches:
        yield Finding(table.name, "ledger", f"takes {claim.sampled} batches for sampled, {tape.batches} are", "")
    if claim.spent > claim.claimed * (1 + _ROUNDING):
        yield Finding(table.name, "ledger", f"spends epsilon {claim.spent:.4g} of {claim.claimed:g}", "")


def _of_the_batches(program: Program, table: Neighbour, tape: Tape, expected: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what tells who was drawn into batches, besides what goes into the releases and how fast a model is said to
    be in the log, of which no layer works where nobody is drawn.
    """
    if not tape.batches:
        return
    again, name = Tape(before=tape.releases, leaves_out=True), "nobody is drawn at first"
    lines, _ = _all_that_leaves(program, table, again)
    yield from (each for each in _differing(name, expected, lines) if not each.where.startswith("log:"))
    for place, (one, other) in enumerate(zip(tape.releases, again.releases, strict=False), 1):
        if one.deviation != other.deviation:
            yield Finding(name, f"noise of release {place}", f"deviation {one.deviation:.6g}",
                          f"deviation {other.deviation:.6g}")
    for place in again.later:
        yield Finding(name, f"release {place + 1}", "of a later step", "something else went in")


def _differing(name: str, expected: Mapping[str, str], lines: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each line that differs from what is expected."""
    return [Finding(name, where, expected.get(where, "nothing"), lines.get(where, "nothing"))
            for where in sorted({*expected, *lines}) if expected.get(where) != lines.get(where)]


def _is_no_neighbour(one: Left, other: Left | Exception, tape: Tape) -> bool:
    """Return whether a table is told apart by what is public: one number, by one, or that it could be read at all."""
    if isinstance(other, Exception):
        return isinstance(other, one.refusals) and not tape.releases
    return one.public.keys() == other.public.keys() and sum(abs(one.public[name] - other.public[name])
                                                                 for name in one.public) == 1


def _all_that_leaves(program: Program, table: Neighbour, tape: Tape) -> tuple[dict[str, str], Left | Exception]:
    """Return each line that a program writes, says or sends, by its place, and what it left, or how it refuses."""
    lines: dict[str, str] = {}
    log, root, before = _Lines(), logging.getLogger(), {*files_of_this_process()}
    root.addHandler(log)
    left: Left | Exception
    try:
        with attached(tape, tape.draw), tempfile.TemporaryDirectory() as folder:
            left = program(table.path, Path(folder) / "out")
            for file in sorted((Path(folder) / "out").iterdir()):
                lines |= {f"{file.name}:{number}": line for number, line in enumerate(_text(file), 1)}
            lines |= left.lines
    except Exception as error:  # whatever it is, that there is one may tell of a row
        left, lines["refusal"] = error, f"{type(error).__name__}: {error}"
    finally:
        root.removeHandler(log)
    logged = log.lines if isinstance(left, Exception) or left.logs else ()
    lines |= {f"log:{number}": line for number, line in enumerate(logged, 1)}
    for place, file in enumerate(file for file in files_of_this_process() if file not in before):
        lines |= {f"cache, file {place}:{number}": line for number, line in enumerate(_text(file), 1)}
    return lines, left


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
