"""The tables of a report: methods, metrics, groups, guarantees and nodes, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedfair.accounting.events import Observer
from fedfair.accounting.figures import up
from fedfair.fairness.intervals import Estimate
from fedfair.fairness.metrics import ALL, Metric, find
from simulations.drawing.table import Cell, Epsilon, Table
from simulations.results.comparison import Comparison
from simulations.results.ledger_table import TWO_GROUPS, largest
from simulations.results.node_files import COLUMNS
from simulations.statistics.measures import test_records
from simulations.statistics.over_seeds import over_seeds
from simulations.statistics.summary import metrics_in, privacy_costs


def methods_table(comparison: Comparison) -> Table:
    """Show what each method guarantees, its accuracy and its fairness, in a row each, and the majority class's rate."""
    rows: list[Sequence[Cell]] = []
    marks: dict[tuple[int, int], str] = {}
    for number, row in enumerate(comparison.summary.to_dict("records")):
        runs = comparison.final.xs(row["strategy"], level="strategy")
        means = [row[f"{metric.name}_mean"] if metric.of == "runs" else _estimate(runs, ALL, metric)
                 for metric in comparison.in_table]
        rows.append((row["strategy"], *means, _constant(row), Epsilon(row["epsilon"]), row["guarantee"],
                     int(row["seeds"])))
        marks |= {(number, place): comparison.marks.of(row["strategy"], metric.name)
                  for place, metric in enumerate(comparison.in_table, 1)}
    columns = ("method", *(metric.title for metric in comparison.in_table), "seeds with one class", "epsilon",
               "guarantee", "seeds")
    foot: list[Sequence[Cell]] = []
    if (ALL, "majority_rate") in comparison.final:
        rate = _estimate(comparison.final.groupby(level="seed").first(), ALL, find("majority_rate"))
        nothing: list[Cell] = ["-" if metric.of == "runs" else Estimate(math.nan) for metric in comparison.in_table[1:]]
        foot.append(("majority class", rate, *nothing, "-", "-", "-", comparison.seeds))
    delta, legend = comparison.summary["delta"].iloc[0], [f" {line}." for line in comparison.marks.legend()]
    return Table("methods", "Methods", columns, rows,
                 f"On test records after the last round; epsilon at delta {up(delta, '.6g')}. Parities and gaps are "
                 "the largest difference between groups: 0 is fair. Majority class: always predicting the most "
                 f"frequent one.{''.join(legend)}", marks=marks, foot=foot)


def metrics_table(comparison: Comparison) -> Table:
    """Show each method's further metrics, over all test records and by group, in a row each."""
    metrics = metrics_in("groups", comparison.final)
    rows: list[Sequence[Cell]] = []
    for group in (ALL, *comparison.sizes):
        for method in comparison.methods:
            runs = comparison.final.xs(method, level="strategy")
            rows.append((group, method, *(_estimate(runs, group, metric) for metric in metrics)))
    return Table("metrics", "Further metrics", ("group", "method", *(metric.title for metric in metrics)), rows,
                 "Recall is that of the favourable class. AUC is from a histogram of scores. What a group's test "
                 "records cannot tell is unknown.", folded=True)


def _estimate(runs: Any, group: str, metric: Metric) -> Estimate:
    """Return a metric's mean over runs; not a number if they do not have it."""
    values = list(runs[group, metric.name]) if (group, metric.name) in runs else [math.nan]
    return over_seeds(values, metric.least, metric.most)


def _constant(row: Mapping[Any, Any]) -> str:
    """Say in how many seeds a method predicts one class alone."""
    known = row.get("constant_seeds", math.nan)
    return "unknown" if math.isnan(known) else f"{known:.0f} of {row['seeds']}"


def choices_table(comparisons: Sequence[Comparison]) -> Table:
    """Show each choice of a sweep's settings and method on one data set, in a row each."""
    names = list(dict.fromkeys(name for comparison in comparisons for name in comparison.chosen))
    tables = [methods_table(comparison) for comparison in comparisons]
    rows: list[Sequence[Cell]] = []
    for comparison, table in zip(comparisons, tables, strict=True):
        chosen = [comparison.chosen.get(name, "") for name in names]
        cells = [value if isinstance(value, str | int | float) else str(value) for value in chosen]
        rows += [(*row[:1], *cells, *row[1:]) for row in table.rows]
    columns = (*tables[0].columns[:1], *names, *tables[0].columns[1:])
    return Table("choices", "All choices", columns, rows, tables[0].caption)


def groups_table(comparison: Comparison) -> Table:
    """Show what each group gets under each method and what it pays, in a row each."""
    costs, tested = privacy_costs(comparison.final), test_records(comparison.final)
    rows: list[Sequence[Cell]] = []
    marks: dict[tuple[int, int], str] = {}
    for group, size in comparison.sizes.items():
        for method in comparison.methods:
            runs = comparison.final.xs(method, level="strategy")
            paid = costs.xs(method, level="strategy")[group]
            marks[len(rows), 2] = comparison.marks.of(method, "accuracy", group)
            accuracy, selected, loss = (_estimate(runs, group, find(name))
                                        for name in ("accuracy", "positive_rate", "loss"))
            rows.append((group, method, accuracy, over_seeds(list(paid), -1.0, 1.0), selected, loss, size or "-",
                         tested.get(group, "unknown")))
    columns = ("group", "method", "accuracy", "privacy cost", "positive rate", "loss", "training records",
               "test records")
    return Table("groups", "Groups", columns, rows,
                 "The privacy cost is the accuracy that the group loses against the same training without privacy. "
                 f"Test records: the fewest of a seed. {'. '.join(comparison.marks.legend())}", marks=marks)


def sites_table(comparison: Comparison) -> Table | None:
    """Show what the test records of each site, or participant, get under each method; None if none were comparison."""
    by_client = comparison.by_client
    if by_client.empty:
        return None
    metrics = [find("accuracy"), *metrics_in("groups", comparison.final)]
    rows: list[Sequence[Cell]] = []
    for site in [name for name in by_client.columns.unique("group") if name != ALL]:
        for method in by_client.index.unique("strategy"):
            runs = by_client.xs(method, level="strategy")
            records = runs[site, "records"].min()
            rows.append((str(site), str(method), *(_estimate(runs, str(site), metric) for metric in metrics),
                         0 if math.isnan(records) else int(records)))
    return Table("sites", "By site", ("site", "method", *(metric.title for metric in metrics), "test records"),
                 rows, "On the test records that each client would hold. Test records: the fewest of a seed.")


def nodes_table(comparison: Comparison) -> Table | None:
    """Show what each node contributed; None where nodes have no files of their own."""
    if comparison.nodes.empty:
        return None
    numbers = ("sites", "records", "rounds", "answered", "missed")
    rows: list[Sequence[Cell]] = []
    for row in comparison.nodes.to_dict("records"):
        rows.append((str(row["node"]), str(row["method"]), *(int(row[name]) for name in numbers),
                     Epsilon(row["epsilon"])))
    return Table("nodes", "By node", ("node", "method", *(COLUMNS[name] for name in (*numbers, "epsilon"))), rows,
                 "Every node kept its file. Numbers of training records are public, rounded up where round_sizes says "
                 "so; epsilon is of a training record, in this run alone. A node that refused a request ended its run.")


def tests_table(comparison: Comparison) -> Table:
    """Show for each measure and pair of methods whether the difference of means may be chance, in a row each."""
    rows = [(find(row["metric"]).title, row["better"], row["worse"], int(row["seeds"]), row["difference"],
             row["p"], row["p_holm"]) for row in comparison.tests.to_dict("records")
            if row["difference"] and find(row["metric"]).larger_is_better == (row["difference"] > 0)]
    return Table("tests", "Paired tests between methods",
                 ("measure", "better", "worse", "seeds", "difference", "p", "p, Holm"), rows,
                 "One-sided Wilcoxon signed-rank tests paired by seed, corrected by Holm for all tests of a measure, "
                 "in both directions. With n seeds no p can be below 1 in 2 to the n.", folded=True)


def ledger_by_method(comparison: Comparison) -> Table:
    """Show what each method promises, in a row each: the largest epsilon over its seeds."""
    rows: list[Sequence[Cell]] = []
    for method in comparison.methods:
        of = [ledger for (_, name, _), ledger in comparison.ledgers.items() if name == method]
        rows.append((method, len(of), of[0].guarantee, of[0].protects, *map(Epsilon, largest(of)),
                     up(of[0].delta, ".6g"), ", ".join(of[0].unprotected) or "nothing"))
    return Table("ledger-methods", "Ledger by method",
                 ("method", "seeds", "guarantee", "one", "epsilon", "epsilon, by RDP", "spent, largest group", "delta",
                  "not protected"), rows, f"The largest over the seeds. {MEANINGS}")


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
