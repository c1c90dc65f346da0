"""Claims of significance, tested again: one-sided Wilcoxon signed-rank tests, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import pandas as pd

from simulations.reproductions.cells import strategy_name
from simulations.reproductions.published import Published
from simulations.results.paired_tests import holm


class ClaimTest(NamedTuple):
    """One claim: on a data set, `better` is better than `worse` by a metric of all records, or by a gap.

    `difference` is that of the means, better less worse. `p` is that of this test alone, as papers report it; `p_holm`
    is corrected for all claims of the table together (Holm 1979).
    """

    dataset: str
    metric: str
    better: str
    worse: str
    seeds: int
    difference: float
    p: float
    p_holm: float


class Statistics(NamedTuple):
    """Results of the tests: of the paper's `claims`, and of all methods in sentences by data set (`findings`)."""

    claims: Sequence[ClaimTest] = ()
    findings: Mapping[str, Sequence[str]] = {}


def claim_tests(published: Published, every: pd.DataFrame) -> list[ClaimTest]:
    """Return the paper's claims among all tests (see `simulations.results.paired_tests.comparisons`)."""
    keys = ["dataset", "metric", "better", "worse"]
    tests = {tuple(row[key] for key in keys): row for row in every.to_dict("records")}
    claims = []
    for dataset, claim in product(every["dataset"].unique(), published.claims):
        for metric, better, worse in product(claim.metric, claim.better, claim.worse):
            key = (dataset, metric, strategy_name(published, better), strategy_name(published, worse))
            if key in tests:
                seeds, difference, p = (tests[key][name] for name in ("seeds", "difference", "p"))
                claims.append(ClaimTest(dataset, metric, better, worse, seeds, difference, p, 1.0))
    adjusted = holm([test.p for test in claims])
    return [test._replace(p_holm=p) for test, p in zip(claims, adjusted, strict=True)]
