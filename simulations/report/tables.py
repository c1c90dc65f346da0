"""Tables as data: the page sorts them and offers them as CSV, `latex` writes them for papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedfair.accounting.figures import up
from fedfair.accounting.observers import Observer
from fedfair.fairness.metrics import ALL
from simulations.report.comparison import Comparison
from simulations.report.estimates import Estimate, over_seeds, share_over_seeds
from simulations.results.ledger_table import TWO_GROUPS
from simulations.results.measures import LARGER_IS_BETTER
from simulations.results.reference import privacy_costs

Cell = str | int | float | Estimate


class Epsilon(float):
    """An epsilon in a cell: written rounded up."""


@dataclass(frozen=True)
class Table:
    """Rows under headings; `name` is that of its files. A cell that is an `Estimate` shows its interval."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    folded: bool = False


def said(cell: Cell) -> str:
    """Write a cell: three decimals, the interval after the mean, "∞" for an infinite epsilon, "-" for no number."""
    if isinstance(cell, Estimate):
        if math.isnan(cell.low):
            return said(cell.mean)
        return f"{said(cell.mean)} ({said(cell.low)} to {said(cell.high)})"
    if isinstance(cell, float):
        if math.isnan(cell):
            return "-"
        if isinstance(cell, Epsilon) and math.isfinite(cell):
            return up(cell, ".3f")
        return "∞" if math.isinf(cell) else f"{cell + 0.0:.3f}".replace("-0.000", "0.000")
    return f"{cell:,}" if isinstance(cell, int) else cell


def plain(cell: Cell) -> str | int | float:
    """Return a cell as one value, for sorting and for CSV."""
    return cell.mean if isinstance(cell, Estimate) else cell


def methods_table(comparison: Comparison) -> Table:
    """Show what each method guarantees, its accuracy and its fairness, in a row each."""
    rows: list[Sequence[Cell]] = []
    for row in comparison.summary.to_dict("records"):
        runs = comparison.final.xs(row["strategy"], level="strategy")
        fair = [share_over_seeds(list(runs[ALL, metric]))
                for metric in ("accuracy", "accuracy_parity", "demographic_parity")]
        rows.append((row["strategy"], int(row["seeds"]), Epsilon(row["epsilon"]), row["guarantee"], *fair,
                     row["privacy_cost_gap_mean"], row["excessive_risk_gap_mean"]))
    columns = ("method", "seeds", "epsilon", "guarantee", "accuracy", "accuracy parity", "demographic parity",
               "privacy cost gap", "excessive risk gap")
    delta = comparison.summary["delta"].iloc[0]
    return Table("methods", "Methods", columns, rows,
                 f"On test records after the last round; epsilon at delta {up(delta, '.6g')}. Parities and gaps are "
                 "the largest difference between groups: 0 is fair.")


def choices_table(comparisons: Sequence[Comparison]) -> Table:
    """Show each choice of a sweep's settings and method on one data set, in a row each."""
    names = list(dict.fromkeys(name for comparison in comparisons for name in comparison.chosen))
    tables = [methods_table(comparison) for comparison in comparisons]
    rows = [(*row[:1], *(_choice(comparison.chosen.get(name, "")) for name in names), *row[1:])
            for comparison, table in zip(comparisons, tables, strict=True) for row in table.rows]
    columns = (*tables[0].columns[:1], *names, *tables[0].columns[1:])
    return Table("choices", "All choices", columns, rows, tables[0].caption)


def _choice(value: object) -> Cell:
    """Return a varied setting's value as a cell."""
    return value if isinstance(value, str | int | float) else str(value)


def groups_table(comparison: Comparison) -> Table:
    """Show what each group gets under each method and what it pays, in a row each."""
    costs = privacy_costs(comparison.final)
    rows: list[Sequence[Cell]] = []
    for group, size in comparison.sizes.items():
        for method in comparison.methods:
            runs = comparison.final.xs(method, level="strategy")
            paid = costs.xs(method, level="strategy")[group]
            accuracy, positive, loss = (list(runs[group, metric]) for metric in ("accuracy", "positive_rate", "loss"))
            rows.append((group, size or "-", method, share_over_seeds(accuracy), over_seeds(list(paid), -1.0, 1.0),
                         share_over_seeds(positive), over_seeds(loss, 0.0)))
    return Table("groups", "Groups", ("group", "training records", "method", "accuracy", "privacy cost",
                                      "positive rate", "loss"), rows,
                 "The privacy cost is the accuracy that the group loses against the same training without privacy.")


def tests_table(comparison: Comparison) -> Table:
    """Show for each measure and pair of methods whether the difference of means may be chance, in a row each."""
    rows = [(row["metric"].replace("_", " "), row["better"], row["worse"], int(row["seeds"]), row["difference"],
             row["p"], row["p_holm"]) for row in comparison.tests.to_dict("records")
            if row["difference"] and LARGER_IS_BETTER[row["metric"]] == (row["difference"] > 0)]
    return Table("tests", "Paired tests between methods",
                 ("measure", "better", "worse", "seeds", "difference", "p", "p, Holm"), rows,
                 "One-sided Wilcoxon signed-rank tests paired by seed, corrected by Holm for all tests of a measure, "
                 "in both directions. With n seeds no p can be below 1 in 2 to the n.", folded=True)


def ledger_by_group(comparison: Comparison) -> Table:
    """Show the epsilons of each method and group, by the ledger of the first seed."""
    rows: list[Sequence[Cell]] = []
    for method, ledger in comparison.first_ledgers.items():
        columns = (ledger.guaranteed_by_group(), ledger.guaranteed_by_group(accountant="rdp"),
                   ledger.epsilon_by_group(), ledger.odometer_by_group())
        rows += [(method, group, *(Epsilon(values[group]) for values in columns)) for group in ledger.groups]
    return Table("ledger-groups", "Epsilon by group",
                 ("method", "group", "guaranteed", "guaranteed, by RDP", "spent", "odometer"), rows,
                 f"{MEANINGS} Odometer: a proved bound on what was spent, although the bounds were chosen on the way. "
                 f"{TWO_GROUPS}.")


def ledger_by_observer(comparison: Comparison) -> Table:
    """Show the epsilons of each method and observer, by the ledger of the first seed."""
    rows: list[Sequence[Cell]] = []
    for method, ledger in comparison.first_ledgers.items():
        spent = ledger.by_observer_and_group()
        rows += [(method, OBSERVER_WORDS[observer], Epsilon(value),
                  Epsilon(max(spent[observer].values(), default=0.0)))
                 for observer, value in ledger.by_observer().items()]
    return Table("ledger-observers", "Epsilon by observer", ("method", "against", "guaranteed", "spent, largest group"),
                 rows, MEANINGS)


MEANINGS = ("Guaranteed: certain before the run began, whatever it released on the way. Spent: composed from the "
            "bounds that were in force in this run. ∞: nothing is promised.")


OBSERVER_WORDS: dict[Observer, str] = {"model": "whoever gets the model",
                                      "server": "the server", "client": "another client"}
