"""An attacker at the server, who knows all records but one, and looks for it in what nodes send: distributed trust.

A node's own share of the noise hides little: without masks the server finds more than the sum's epsilon allows. Under
masks a node's message tells nothing, and the opened sum no more than that epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from fedfair.accounting import Release, epsilon
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.integer_sums import Steps, noisy_steps
from fedfair.mechanisms.randomness import stream
from fedfair.models.published import linear
from fedfair.moments.sums import SENSITIVITY
from fedfair.node.masked_sums import share_deviation
from fedfair.node.moment_sums import Wanted, sums_of_records
from fedfair.node.node import Node
from tests.fedfair.secure_sums.parties import Sum
from tests.hazards.test_moments_attack import DELTA, SIGMA, TIMES, WIDTH, flat, plan, proved_by, records

NODES = 4
LEDGER = epsilon({Release(1.0, SIGMA): 1}, DELTA, "pld")
PLAN = replace(plan("", SENSITIVITY, NODES), noise="discrete")


@cache
def exact(one: bool) -> Gradients:
    """Return the exact sums of a node, with one record more or without it."""
    return sums_of_records(Node({0: records(5, one)}, linear((WIDTH,), (), 2), "cpu"), PLAN, Wanted(2, False))


@cache
def steps(one: bool, nodes: int, times: int = TIMES) -> list[Steps]:
    """Return what nodes add up in each of many sums, with noise, in whole steps, `[times, numbers]`.

    The first of them may have one record more.
    """
    return [noisy_steps({"all": flat(exact(one and not node)).repeat(times)}, share_deviation(PLAN),
                        [stream(f"{one}", "noise", node)]).reshape(times, -1) for node in range(nodes)]


def found(sent: Callable[[bool], Steps]) -> tuple[np.ndarray, np.ndarray]:
    """Return the best test's scores of what is sent without the record and with it."""
    without, with_it = (noisy_steps(exact(one), share_deviation(PLAN), []).astype(float) for one in (False, True))
    return sent(False).astype(float) @ (with_it - without), sent(True).astype(float) @ (with_it - without)


def test_without_masks_a_nodes_message_gives_more_away_than_the_sums_epsilon() -> None:
    assert proved_by(*found(lambda one: steps(one, 1, 4 * TIMES)[0])) > LEDGER


def test_the_sum_stays_below_the_ledger_and_comes_near_it() -> None:
    proved = proved_by(*found(lambda one: np.sum(steps(one, NODES), axis=0)))
    assert 0.35 * LEDGER <= proved <= LEDGER


@cache
def masked(one: bool) -> list[Steps]:
    """Return what three nodes send in place of `steps`."""
    sums = [Sum(3, 3).deal().mask(of_nodes).masked for of_nodes in zip(*steps(one, 3, 100), strict=True)]
    return [np.stack([words[node].view(np.int64) for words in sums]) for node in range(3)]


@pytest.mark.parametrize("signs", [(1, 0, 0), (1, 1, 1), (1, -1, 0)])
def test_under_masks_the_messages_tell_nothing(signs: Iterable[int]) -> None:
    """One message, all together, and the difference of two. Right code fails in one of a million runs."""
    def combined(one: bool) -> Steps:
        return np.asarray(sum(sign * message for sign, message in zip(signs, masked(one), strict=True)))

    assert stats.mannwhitneyu(*found(combined)).pvalue > 1e-6 / 3
    assert stats.mannwhitneyu(*found(lambda one: steps(one, 1, 100)[0])).pvalue < 1e-12
