"""A ledger as tables for the terminal: what is guaranteed and spent, by group and observer, and why."""

from __future__ import annotations

import json
import math
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedfair.accounting import Ledger


def read_ledgers(folder: Path) -> dict[str, Ledger]:
    """Read the ledgers that a run ("") or a comparison ("strategy/seed-0", ...) left in its folder.

    Raises `FileNotFoundError` if there is none.
    """
    file = folder / "ledger.json"
    if not file.is_file():
        raise FileNotFoundError(f"there is no ledger.json in {folder}: give the folder of a finished run")
    values = json.loads(file.read_text())
    return {"": Ledger.from_dict(values)} if "groups" in values else {
        name: Ledger.from_dict(value) for name, value in values.items()}


def ledger_table(ledger: Ledger, delta: float | None = None) -> RenderableType:
    """Lay out epsilon at `delta` (by default the ledger's) by group and observer, and explain each figure."""
    at = ledger.delta if delta is None else delta
    title = Text(f"epsilon at delta {at:g}, for one {ledger.protects}, by {ledger.accountant}", "italic")
    seen, spent = ledger.by_observer(at), ledger.by_observer_and_group(at)
    by_observer = _table("", *(f"against {observer}" for observer in seen))
    by_observer.add_row("guaranteed to all", *map(_number, seen.values()))
    for name in ledger.groups:
        by_observer.add_row(Text(f"spent by {name}"), *(_number(spent[observer][name]) for observer in seen))
    columns = {"guaranteed": ledger.guaranteed_by_group(at), "by RDP": ledger.guaranteed_by_group(at, "rdp"),
               "spent": ledger.epsilon_by_group(at), "odometer": ledger.odometer_by_group(at)}
    by_group = _table("group", *columns)
    for name in ledger.groups:
        by_group.add_row(Text(name), *(_number(values[name]) for values in columns.values()))
    return Group(title, by_group, Text(), by_observer, Text(), *(Text(line) for line in notes(ledger, at)))


def notes(ledger: Ledger, delta: float) -> list[str]:
    """Explain what the figures at `delta` rest on."""
    lines = [f"guarantee: {ledger.guarantee}, because {ledger.reason}",
             f"spent: {ledger.reading()}; the odometer bounds it with proof, whatever the bounds depended on",
             f"known to everybody: {ledger.public}", ledger.validation_data()]
    if ledger.budget is not None:
        lines.append(f"every group is kept within Renyi divergence {ledger.budget.divergence:.4g} at order "
                     f"{ledger.budget.order}, epsilon {ledger.budget.epsilon(delta):.4g} at delta {delta:g}")
    return lines + [f"not protected: {name} ({why})" for name, why in ledger.unprotected.items()]


def _table(first: str, *columns: str) -> Table:
    """Make a plain table with numbers after its first column."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True, max_width=24)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _number(value: float) -> str:
    """Format a number with three decimals, or "none" where nothing protects."""
    return f"{value:.3f}" if math.isfinite(value) else "none"
