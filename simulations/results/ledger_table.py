"""A ledger as tables for the terminal, and its guarantee in words: what is guaranteed and spent, to whom, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fedfair.accounting import Ledger, RenyiFilter
from fedfair.accounting.contents import MEANINGS
from fedfair.accounting.figures import up
from fedfair.accounting.ledger_words import delta_warning, objections, parts_data, preprocessing_data, reading
from fedfair.datasets.names import visible
from simulations.drawing.table import Table, terminal

GUARANTEED = "guaranteed: certain before the run began, whatever it released on the way"
SPENT = ("spent: composed from the bounds that were in force in this run. The odometer bounds it with proof, whatever "
         "the bounds depended on")
TWO_GROUPS = ("A group's figure hides whether one more of its members is there. To hide which of two groups somebody "
              "is in costs the sum of both groups' figures; docs/auditing.md says at which delta")

_EXPOSED = ("held-out", "training", "unknown")
"""Protections that are none: a reader must know of which files."""


def largest(ledgers: Sequence[Ledger], delta: float | None = None) -> tuple[float, float, float]:
    """Return the largest epsilon over ledgers: guaranteed, guaranteed by RDP, and spent by any group."""
    figures = [(ledger.epsilon(delta), ledger.epsilon(delta, "rdp"),
                max(ledger.epsilon_by_group(delta).values(), default=0.0)) for ledger in ledgers]
    guaranteed, by_rdp, spent = map(max, zip(*figures, strict=True))
    return guaranteed, by_rdp, spent


def methods_ledger(ledgers: Mapping[str, Ledger], delta: float | None = None) -> RenderableType:
    """Lay out the ledgers of a comparison ("strategy/seed-0", ...) in a row for each method."""
    by_method: dict[str, list[Ledger]] = {}
    for name, ledger in ledgers.items():
        by_method.setdefault(name.rpartition("/")[0], []).append(ledger)
    rows = [(method, str(len(of)), of[0].guarantee, *map(_number, largest(of, delta)))
            for method, of in by_method.items()]
    return Group(Text("by method: the largest epsilon over the seeds, and over the groups", "italic"),
                 _plain("method", ("seeds", "guarantee", "guaranteed", "by RDP", "spent"), rows))


def ledger_table(ledger: Ledger, delta: float | None = None) -> RenderableType:
    """Lay out epsilon at `delta` (by default the ledger's) by group and observer, and explain each figure."""
    at = ledger.delta if delta is None else delta
    title = Text(f"epsilon at delta {up(at, '.6g')}, for one {ledger.protects}, by {ledger.accountant}", "italic")
    seen, spent = ledger.by_observer(at), ledger.by_observer_and_group(at)
    of_all = ("guaranteed to all", *map(_number, seen.values()))
    by_observer = _plain("", [f"against {observer}" for observer in seen], [of_all, *(
        (f"spent by {name}", *(_number(spent[observer][name]) for observer in seen)) for name in ledger.groups)])
    columns = {"guaranteed": ledger.guaranteed_by_group(at), "by RDP": ledger.guaranteed_by_group(at, "rdp"),
               "spent": ledger.epsilon_by_group(at), "odometer": ledger.odometer_by_group(at)}
    by_group = _plain("group", list(columns), [
        (name, *(_number(values[name]) for values in columns.values())) for name in ledger.groups])
    return Group(title, by_group, Text(), by_observer, Text(), *(Text(visible(line)) for line in notes(ledger, at)))


def notes(ledger: Ledger, delta: float) -> list[str]:
    """Explain what the figures at `delta` rest on."""
    lines = [f"guarantee: {ledger.guarantee}, because {ledger.reason}", GUARANTEED,
             f"{SPENT}. Here it is {reading(ledger)}",
             f"known to everybody: {ledger.public}", *parts_data(ledger),
             *filter(None, [preprocessing_data(ledger)])]
    if len(ledger.groups) > 1 and ledger.guarantee != "none":
        lines.append(TWO_GROUPS)
    if warning := delta_warning(ledger, delta):
        lines.append(f"warning: {warning}")
    for kept, budget in _kept(ledger):
        lines.append(f"{kept} is kept within Renyi divergence {up(budget.divergence, '.4g')} at order {budget.order}, "
                     f"epsilon {up(budget.epsilon(delta), '.4g')} at delta {up(delta, '.6g')}")
    lines += [f"not protected: {name} ({why})" for name, why in ledger.unprotected.items()]
    return lines + file_notes(ledger) if ledger.files else lines


def _kept(ledger: Ledger) -> list[tuple[str, RenyiFilter]]:
    """Return who is kept within which budget: all, or each group within its own."""
    if isinstance(ledger.budget, RenyiFilter):
        return [("every group", ledger.budget)]
    return [(f"group {name}", budget) for name, budget in ledger.budgets.items()]


def file_notes(ledger: Ledger) -> list[str]:
    """Say what the files hold by what protects it, a line each, and whether they can be published.

    What is not protected is named with its files.
    """
    lines = []
    for kind, meaning in MEANINGS.items():
        held = [(name, part.holds) for name, parts in ledger.files.items() for part in parts if part.protection == kind]
        if not held:
            continue
        what = dict.fromkeys(f"{name}: {holds}" if kind in _EXPOSED else holds for name, holds in held)
        files = len({name for name, _ in held})
        lines.append(f"in {files} file{'s' * (files != 1)}, {meaning}: {'; '.join(what)}")
    if lines:
        lines.append("what each file holds: ledger.json, under files")
    for whose, reasons in objections(ledger).items():
        can = "cannot be published: the guarantee and the lines above say why" if reasons else "can be published"
        lines.append(f"as far as the privacy of {whose} goes, the files {can}")
    return lines


def _plain(first: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    """Lay out a table without lines, with numbers after its first column."""
    return terminal(Table(columns=(first, *columns), rows=rows, figures=range(1, 1 + len(columns)), framed=False))


def _number(value: float) -> str:
    """Format an epsilon with three decimals, or "none" where nothing protects."""
    return up(value, ".3f") if math.isfinite(value) else "none"


def promise(ledger: Ledger) -> str:
    """Say what a ledger guarantees, for a reader who does not know epsilon."""
    epsilon = ledger.epsilon()
    if ledger.guarantee == "none":
        return f"No guarantee: {ledger.reason}. The model may reveal whether a {ledger.protects} was used."
    delta = up(ledger.delta, ".6g").replace("e-0", "e-")
    text = (f"Adding or removing any one {ledger.protects} makes whatever can be found out from the model at most "
            f"{_factor(epsilon)} as likely, plus a probability of {delta} (epsilon {up(epsilon, '.3g')}, "
            f"delta {delta}).")
    if ledger.guarantee == "nominal":
        return f"Not proved, only nominal: {ledger.nominal}. If it held: {text}"
    if ledger.guarantee == "simulated":
        return f"Simulated, not proved: {ledger.simulated}. Then: {text}"
    return f"Proved. {text}"


def _factor(epsilon: float) -> str:
    """Write e^epsilon, rounded up as every figure that is promised."""
    if epsilon > math.log(1e7):
        return f"e^{up(epsilon, '.3g')} times"
    times = math.exp(epsilon)
    return f"{up(times, '.3g')} times" if times < 100 else f"{math.ceil(times):,} times"
