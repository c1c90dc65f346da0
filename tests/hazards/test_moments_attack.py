"""An attacker who knows all records but one, and looks for it in the released moments and gradients.

It compares the release with what it knows, along the one direction in which the record would show: the best test there
is, by Neyman and Pearson. What it finds must stay below the epsilon of the ledger, and come near it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedfair.accounting import Release, epsilon
from fedfair.datasets import GroupedDataset, Parts
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms import noise
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.models.published import linear
from fedfair.moments.heads import Head
from fedfair.moments.logistic import start, stepped
from fedfair.moments.release import Moments
from fedfair.moments.sums import SENSITIVITY, unmixed, unsvec, within_one
from fedfair.node import noisy_sums as host
from fedfair.node.moment_sums import (
    Wanted,
    participant_moments,
    record_moments,
    sums_of_participants,
    sums_of_records,
)
from fedfair.node.node import Node
from fedfair.node.noisy_sums import with_noise
from fedfair.protocol.round import Round

WIDTH, DELTA, TIMES = 6, 1e-3, 4000
SIGMA = 1.0


def records(n: int, one: bool, scale: float = 0.3) -> Parts:
    """Return n records, and one more, long and unlike them."""
    draws = torch.Generator().manual_seed(0)
    x = scale * torch.randn(n, WIDTH, generator=draws, dtype=torch.float64)
    unlike = 50 * torch.eye(WIDTH, dtype=torch.float64)[:1]
    x = torch.cat([x, unlike]) if one else x
    y = group = torch.zeros(len(x), dtype=torch.long)
    data = GroupedDataset(x, y, group, ("a", "b"), 2)
    return Parts(data, data.take(slice(0)), data.take(slice(0)))


def plan(key: str, clip_norm: float, clients: int, noise_multiplier: float = SIGMA, step: int = 0) -> Round:
    """Return a plan in which the clients add the noise in shares."""
    return Round(key=key, step=step, rates=(1.0, 1.0), noise_multiplier=noise_multiplier, trust=Trust.DISTRIBUTED,
                 clients=clients, rule=Flat(clip_norm), planned_multipliers=(noise_multiplier,) * 2)


class Attacked(NamedTuple):
    """What is attacked: the release of records or of participants, with second moments by group or not."""

    of_participants: bool = False
    by_group: bool = False
    mixing: bool = False

    def releases(self, one: bool, keys: Iterable[str], noise_multiplier: float = SIGMA) -> Tensor:
        """Return a release for each key, with one record (or participant) more or without it, `[keys, numbers]`."""
        clients = {0: records(5, one and not self.of_participants)}
        if one and self.of_participants:
            clients[1] = records(40, True, 1.0)
        node, wanted = Node(clients, linear((WIDTH,), (), 2), "cpu"), Wanted(2, self.by_group, mixing=self.mixing)
        sums_of, send, norm = ((sums_of_participants, participant_moments, 3.0) if self.of_participants else
                               (sums_of_records, record_moments, SENSITIVITY))
        plans = [plan(key, norm, len(clients), noise_multiplier) for key in keys]
        exact = sums_of(node, plans[0], wanted)  # once: noise alone follows from the key
        released = torch.stack([flat(with_noise(exact, None, each, node.clients).sums) for each in plans])
        assert torch.equal(flat(send(node, plans[-1], wanted).sums), released[-1])
        return released


def flat(sums: Gradients) -> Tensor:
    """Return all released numbers."""
    return torch.cat([value.flatten() for value in sums.values()])


def found(attacked: Attacked) -> tuple[float, float]:
    """Return the epsilon that the best attacker proves at 99.9 % confidence, and that of the ledger."""
    without, with_it = (attacked.releases(one, [""], 0.0)[0] for one in (False, True))
    direction = (with_it - without) / (with_it - without).norm()
    scores = [(attacked.releases(one, [f"{one} {time}" for time in range(TIMES)]) @ direction).numpy()
              for one in (False, True)]
    return proved_by(*scores), epsilon({Release(1.0, SIGMA): 1}, DELTA, "pld")


def proved_by(without: np.ndarray, with_it: np.ndarray) -> float:
    """Return a lower bound on epsilon from scores, by Clopper and Pearson's bounds on how often they pass a threshold.

    One half of the scores chooses the threshold, the other half measures.
    """
    half = len(without) // 2
    thresholds = np.quantile(np.concatenate([without[:half], with_it[:half]]), np.linspace(0.5, 0.999, 40))
    chosen = max(thresholds, key=lambda threshold: _bound(without[:half], with_it[:half], threshold))
    return _bound(without[half:], with_it[half:], chosen)


def _bound(without: np.ndarray, with_it: np.ndarray, threshold: float) -> float:
    """Return the least epsilon at which the scores could pass a threshold so often; 0 if they tell nothing."""
    wrong, right = int((without > threshold).sum()), int((with_it > threshold).sum())
    most = stats.beta.ppf(1 - 5e-4, wrong + 1, len(without) - wrong)
    least = stats.beta.ppf(5e-4, right, len(with_it) - right + 1) if right else 0.0
    return max(0.0, math.log((least - DELTA) / most)) if least > DELTA else 0.0


@pytest.mark.parametrize("attacked", [Attacked(), Attacked(by_group=True), Attacked(of_participants=True),
                                      Attacked(mixing=True), Attacked(of_participants=True, mixing=True)])
def test_the_best_attacker_stays_below_the_ledger_and_comes_near_it(attacked: Attacked) -> None:
    proved, ledger = found(attacked)
    assert proved <= ledger
    assert proved >= 0.35 * ledger


def test_an_attacker_finds_more_than_the_ledger_if_noise_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "add_noise", lambda kind, values, deviation, draws: noise.add_noise(
        kind, values, deviation / 3, draws))
    proved, ledger = found(Attacked())
    assert proved > ledger


def test_an_attacker_finds_more_than_the_ledger_if_records_are_not_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfair.moments.sums.within_one", lambda features: features)
    proved, ledger = found(Attacked())
    assert proved > ledger


STEPS, RUNS = 1, 5_000


def crowd(one: bool) -> Parts:
    """Return records that are alike and of one class, and perhaps one more like them, of the other class."""
    draws = torch.Generator().manual_seed(0)
    x = 0.1 * torch.randn(301, WIDTH, generator=draws, dtype=torch.float64)
    x[:, 0] = 1.0
    y = (torch.arange(301) == 300).long()
    data = GroupedDataset(within_one(x), y, torch.zeros_like(y), ("a", "b"), 2).take(slice(301 if one else 300))
    return Parts(data, data.take(slice(0)), data.take(slice(0)))


def found_in_all_rounds(missing: float = 1.0, runs: int = RUNS) -> tuple[float, float]:
    """Return what the best attacker proves of moments and logistic steps, which it follows, and the ledger's epsilon.

    In each round it knows the weights, so it knows what everybody else adds and what the record would. The noise of all
    rounds together tells as much as that of one round elsewhere in this file; `missing` divides it.
    """
    claimed = SIGMA * math.sqrt(1 + STEPS)
    parties = [_party(one) for one in (False, True)]
    scores = [np.array([_followed(parties, one, f"{one} {time}", claimed / missing) for time in range(runs)])
              for one in (False, True)]
    return proved_by(*scores), epsilon({Release(1.0, claimed): 1 + STEPS}, DELTA, "pld")


class Party(NamedTuple):
    """A node, its records, and what it would send of moments without noise."""

    node: Node
    data: GroupedDataset
    moments: Tensor


_WANTED = Wanted(2, False, mixing=True)


def _party(one: bool) -> Party:
    """Return the party whose crowd has the one, or not."""
    node = Node({0: crowd(one)}, linear((WIDTH,), (), 2), "cpu")
    return Party(node, crowd(one).train, flat(record_moments(node, plan("", SENSITIVITY, 1, 0.0), _WANTED).sums))


def _exact(party: Party, head: Head | None) -> Tensor:
    """Return what a party would send in a round without noise: moments, or the gradient at some weights."""
    if head is None:
        return party.moments
    errors = torch.softmax(party.data.x @ head.weights, 1) - torch.nn.functional.one_hot(party.data.y, 2)
    return (party.data.x.T @ errors).T.flatten()


def _followed(parties: list[Party], one: bool, key: str, noise_multiplier: float) -> float:
    """Return the attacker's score of one run, the log of how much likelier its releases are with the record."""
    node = parties[one].node
    (name,) = dict(node.model.named_parameters())
    score, head, moments = 0.0, None, None
    for step in range(1 + STEPS):
        round_ = plan(key, SENSITIVITY, 1, noise_multiplier, step)
        sent = (record_moments(node, round_, _WANTED) if head is None else
                node.gradient_sum({name: head.weights.T.contiguous()}, round_)).sums
        known, added = (_exact(party, head) for party in parties)
        score += float((flat(sent) - known) @ (added - known) - (added - known).square().sum() / 2)
        if head is None or moments is None:
            released = Moments(unsvec(sent["second"]), unmixed(sent["first"]), noise_multiplier * SENSITIVITY, 1.0,
                               mixing=True)
            moments = released.pooled()
            head = start(moments)
        else:
            head = stepped(head, sent[name].T, moments, step)
    return score


def test_what_the_attacker_takes_for_sent_is_sent_where_there_is_no_noise() -> None:
    party = _party(True)
    (name,) = dict(party.node.model.named_parameters())
    weights = torch.randn(WIDTH, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    head = Head(weights, torch.eye(WIDTH))
    sent = party.node.gradient_sum({name: head.weights.T.contiguous()}, plan("", SENSITIVITY, 1, 0.0, 1)).sums
    assert torch.allclose(flat(sent), _exact(party, head), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_best_attacker_of_logistic_steps_stays_below_the_ledger_and_comes_near_it() -> None:
    proved, ledger = found_in_all_rounds()
    assert proved <= ledger
    assert proved >= 0.35 * ledger


@pytest.mark.slow
def test_an_attacker_of_logistic_steps_finds_more_than_the_ledger_if_noise_is_missing() -> None:
    proved, ledger = found_in_all_rounds(missing=3, runs=2000)
    assert proved > ledger
