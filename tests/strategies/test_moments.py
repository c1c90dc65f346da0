"""Moments as a strategy: the same sums however records are dealt, the noise that is charged, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedfair import client_app
from fedfair.accounting import Release, epsilon
from fedfair.datasets import GroupedDataset, Parts
from fedfair.mechanisms.clipping import Flat, PerGroup
from fedfair.mechanisms.noise import Trust
from fedfair.moments import sums
from fedfair.moments.release import Moments as Released
from fedfair.moments.sums import mixed
from fedfair.node import moment_sums
from fedfair.node.moment_sums import Wanted, participant_moments, record_moments
from fedfair.node.node import Node
from fedfair.protocol.round import Round
from simulations import Experiment, run
from simulations.engines.local import LocalGrid
from simulations.results.result import Result
from strategies.moments import Moments
from strategies.server.replies.requests import population

BY_GROUP = Wanted(2, True)


def experiment(**settings: Any) -> Experiment:
    """Describe a run in double precision, without noise where no epsilon is named."""
    noise = {} if "target_epsilon" in settings else {"noise_multiplier": 0.0}
    return Experiment(**{"strategy": "moments", "features": "bounded", "model": "linear", "dtype": "float64",
                         "delta": 1e-6, "batch_size": 10, **noise, **settings})


def weights(result: Result) -> Tensor:
    return next(result.model.parameters()).detach()


def test_without_noise_every_deal_of_the_records_gives_the_same_classifier(table: dict[str, Any]) -> None:
    settings = {**table, "options": {"tau": 0.2, "by_group": True}}
    whole = weights(run(experiment(**settings)))
    deals: list[dict[str, Any]] = [
        {"partition": "site", "clients": 1}, {"partition": "site", "clients": 7}, {"partition": "group"},
        {"partition": "natural"}, {"partition": "site", "clients": 3, "trust": "distributed"}]
    for deal, nodes in product(deals, (1, 3)):
        dealt = run(experiment(**settings, **deal), nodes=nodes)
        assert torch.allclose(weights(dealt), whole, rtol=0, atol=1e-10), (deal, nodes)
        assert dealt.ledger.guarantee == "none", (deal, nodes)


@pytest.mark.parametrize(("trust", "factor"), [("local", 6**0.5), ("distributed", (6 / 4) ** 0.5), ("central", 1)])
def test_where_clients_may_drop_out_the_noise_is_that_of_those_who_did_not(
        table: dict[str, Any], trust: str, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Released] = []
    monkeypatch.setattr("strategies.moments.release.Moments", lambda *parts: seen.append(Released(*parts)) or seen[-1])
    settings = {**table, "partition": "site", "clients": 6, "trust": trust, "dropouts": 2, "bins": 30}
    for sigma in (0.0, 2.0):
        run(experiment(**settings, noise_multiplier=sigma))
    drawn = sums.svec(seen[-1].second).flatten() - sums.svec(seen[0].second).flatten()
    assert seen[-1].noise == pytest.approx(2 * math.sqrt(2) * factor)
    assert float(drawn.std()) == pytest.approx(seen[-1].noise, rel=0.1)


@pytest.mark.parametrize("trust", list(Trust))
@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_the_sums_carry_the_noise_that_the_ledger_charges(table: dict[str, Any], trust: Trust, noise: str,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Of deviation sigma sqrt(2) on every number; under local trust of each client."""
    seen: list[Released] = []
    monkeypatch.setattr("strategies.moments.release.Moments", lambda *parts: seen.append(Released(*parts)) or seen[-1])
    settings = {**table, "partition": "site", "clients": 3, "trust": trust, "noise": noise, "bins": 30}
    ledgers = [run(experiment(**settings, noise_multiplier=sigma)).ledger for sigma in (0.0, 2.0)]
    quiet, noisy = (torch.cat([sums.svec(one.second).flatten(), mixed(one.first).flatten()])
                    for one in (seen[0], seen[-1]))
    deviation = 2.0 * math.sqrt(2) * (math.sqrt(3) if trust is Trust.LOCAL else 1)
    assert seen[-1].mixing
    assert seen[-1].noise == pytest.approx(deviation)
    drawn = ((noisy - quiet) / deviation).numpy()
    assert len(drawn) > 700
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert drawn.std() == pytest.approx(1, abs=0.1)
    assert ledgers[1].epsilon() == pytest.approx(epsilon({Release(1.0, 2.0): 1}, 1e-6, "pld"))
    assert sum(ledgers[1].events.values()) == 1


def test_the_ledger_is_that_of_one_gaussian_release_of_everybody() -> None:
    """Mu = 1 / sigma, by the formula of Balle and Wang 2018, not by any accountant."""
    ledger = run(experiment(dataset="digits", target_epsilon=1.0)).ledger
    (event, times), = ledger.events.items()
    assert (times, event.rates, event.count_multiplier) == (1, (1.0,) * 10, None)
    mu = 1 / event.multipliers[0]
    at = ledger.epsilon()
    delta = stats.norm.cdf(-at / mu + mu / 2) - math.exp(at) * stats.norm.cdf(-at / mu - mu / 2)
    assert at <= 1.0
    assert delta == pytest.approx(1e-6, rel=0.02)


def test_a_participant_is_protected_by_clipping_its_sums(table: dict[str, Any]) -> None:
    result = run(experiment(**table, partition="natural", strategy="moments-of-participants", clip_norm=3.0,
                            noise_multiplier=1.5))
    assert result.ledger.protects == "participant"
    assert result.ledger.epsilon() == pytest.approx(epsilon({Release(1.0, 1.5): 1}, 1e-6, "pld"))
    assert result.front is not None
    assert result.front.front.records is None  # clipped sums do not count records


def test_the_front_says_how_many_training_records_have_each_feature(table: dict[str, Any]) -> None:
    result = run(experiment(**table, noise_multiplier=1e-9))
    assert result.front is not None
    assert torch.equal(result.front.front.records, result.data.train.x[:, :-1].count_nonzero(0).double())


def round_(rule: Any, rates: tuple[float, ...] = (1.0, 1.0)) -> Round:
    """Return a plan without noise."""
    return Round(key="k", step=0, rates=rates, noise_multiplier=0.0, trust=Trust.CENTRAL, clients=1, rule=rule,
                 planned_multipliers=(0.0, 0.0))


@pytest.fixture
def node(table: dict[str, Any]) -> Node:
    task = experiment(**table, partition="natural").task
    return Node(task.clients_data(), task.build_model(), "cpu")


def test_no_participant_adds_more_than_the_clip_norm(node: Node) -> None:
    """However many records it has: each has about 20, which add up to far more."""
    clipped = participant_moments(node, round_(Flat(2.5)), BY_GROUP).sums
    for left_out in list(node.clients)[:5]:
        kept = {number: node.clients[number] for number in node.clients if number != left_out}
        others = Node(kept, node.model, "cpu")
        without = participant_moments(others, round_(Flat(2.5)), BY_GROUP).sums
        change = torch.cat([(clipped[name] - without[name]).flatten() for name in clipped])
        assert float(change.norm()) == pytest.approx(2.5, rel=1e-9)


def test_a_record_moves_its_participants_clipped_sums_by_more_than_the_clip_norm_and_at_most_twice(node: Node) -> None:
    """So the budget of a node's policy, which is a record's, takes the noise for half as large."""
    number = next(iter(node.clients))
    data, norm = node.clients.training(number), 1e-3
    phi = torch.tensor([1.0] + [0.0] * (data.x.shape[1] - 1), dtype=torch.float64)
    moved = []
    for one in (False, True):
        x = torch.stack([-0.01 * phi, phi])[:1 + one]
        zeros = torch.zeros(len(x), dtype=torch.long)
        made = GroupedDataset(x, zeros, zeros, data.names, data.classes)
        alone = Node({0: Parts(made, made.take(slice(0)), made.take(slice(0)))}, node.model, "cpu")
        sent = participant_moments(alone, round_(Flat(norm)), Wanted(2, False)).sums
        moved.append(torch.cat([value.flatten() for value in sent.values()]))
    assert 1.5 * norm < float((moved[1] - moved[0]).norm()) <= 2 * norm


@pytest.mark.parametrize(("rule", "rates"), [(Flat(1.0), (1.0, 1.0)), (Flat(1.4), (1.0, 1.0)),
                                             (PerGroup((9.0, 9.0)), (1.0, 1.0)), (Flat(9.0), (0.5, 0.5))])
def test_a_node_refuses_a_plan_whose_noise_is_too_little(node: Node, rule: Any, rates: tuple[float, float]) -> None:
    """A server that says a record adds less than it does would have it charged for noise that is not there."""
    with pytest.raises(ValueError, match=r"the round's noise is for records|moments are released of all records"):
        record_moments(node, round_(rule, rates), BY_GROUP)


def test_a_node_refuses_another_number_of_groups(node: Node) -> None:
    with pytest.raises(ValueError, match="moments of 3 groups, but there are 2"):
        record_moments(node, round_(Flat(9.0)), Wanted(3, False))


@pytest.mark.parametrize(("settings", "said"), [
    ({"features": None, "model": "logistic"}, "needs features of bounded norm and a linear model"),
    ({"class_weights": {"yes": 2.0}}, "counts all records alike"),
    ({"options": {"worst_group": 0.5}}, "needs the moments of each group"),
])
def test_settings_that_do_not_fit_are_refused_before_anything_is_released(table: dict[str, Any], said: str,
                                                                          settings: dict[str, Any],
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moment_sums, "moment_sums", lambda *_: pytest.fail("something was summed"))
    with pytest.raises(ValueError, match=said):
        run(experiment(**{**table, **settings}))


def test_groups_that_are_the_classes_have_no_parity() -> None:
    with pytest.raises(ValueError, match="groups are the classes here"):
        run(experiment(dataset="digits", options={"tau": 0.0}))


def test_a_threshold_is_for_two_classes(table: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"options\.threshold is 0\.6, but there are 10 classes"):
        run(experiment(dataset="digits", options={"threshold": 0.6}))
    usual, high = (run(experiment(**table, noise_multiplier=0.0, options={"threshold": at})) for at in (0.5, 0.6))
    decided = [(result.data.test.x.double() @ weights(result).T.double()).argmax(1) for result in (usual, high)]
    assert 0 < int(decided[1].sum()) < int(decided[0].sum())


def test_the_front_has_the_figures_of_its_classifiers(table: dict[str, Any]) -> None:
    """And its first point is the run's model."""
    result = run(experiment(**table, noise_multiplier=1.0, options={"tau": 0.5}, partition="site", clients=3), nodes=2)
    assert result.front is not None
    made, test = result.front.front, result.data.test
    assert torch.allclose(made.weights[0].T, weights(result))
    rows = pd.DataFrame(result.front.rows)
    for point in (0, 7, len(made.points) - 1):
        decided = (test.x @ made.weights[point]).argmax(1)
        rates = [float((decided[test.group == k] == 1).double().mean()) for k in range(2)]
        own = rows[(rows["point"] == point) & (rows["split"] == "test") & (rows["group"] == "all")].set_index("metric")
        assert own.loc["accuracy", "value"] == pytest.approx(float((decided == test.y).double().mean()))
        assert own.loc["demographic_parity", "value"] == pytest.approx(abs(rates[0] - rates[1]))
    final = result.metrics.query("split == 'test' and group == 'all'").set_index("metric")["value"]
    first = rows.query("point == 0 and split == 'test' and group == 'all'").set_index("metric")["value"]
    assert final["accuracy"] == pytest.approx(first["accuracy"])


def test_tau_makes_the_groups_rates_more_alike(table: dict[str, Any]) -> None:
    gaps = [run(experiment(**table, options={"tau": tau}, attribute_in_model=True, seed=2)).metrics.query(
        "split == 'test' and metric == 'demographic_parity'")["value"].iloc[0] for tau in (1.0, 0.3, 0.0)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[0] > 3 * gaps[2]


@pytest.mark.parametrize(("dataset", "accuracy"), [("compas", 0.66), ("law", 0.89)])
def test_built_in_tables_are_proved_by_public_bins(dataset: str, accuracy: float, data_dir: Path) -> None:
    made = experiment(dataset=dataset, target_epsilon=1.0, randomness="system", dtype="float32")
    result = run(made)
    assert result.ledger.guarantee == "proved"
    final = result.metrics.query("split == 'test' and metric == 'accuracy' and group == 'all'")["value"].iloc[0]
    assert final > accuracy - 0.02


def test_private_preprocessing_learns_bins_and_is_charged(data_dir: Path) -> None:
    made = experiment(dataset="law", target_epsilon=3.0, preprocessing="private", bins=6, dtype="float32")
    result = run(made)
    assert result.ledger.preprocessing is not None
    assert 2.9 < result.ledger.epsilon() <= 3.0
    binned = [feature for feature in result.data.train.encoding.features if feature.bin]
    by_column: dict[str, int] = {}
    for feature in binned:
        by_column[feature.column] = by_column.get(feature.column, 0) + 1
    assert by_column
    assert max(by_column.values()) <= 8  # with those beside heavy values
    assert result.ledger.nominal is None


def test_a_helper_server_knows_the_deviation(table: dict[str, Any]) -> None:
    made = experiment(**table, noise_multiplier=3.0, trust="local", partition="site", clients=4)
    server = Moments(made.task, made.training, population(LocalGrid(client_app.app, 1), made.task))
    assert server._deviation_of(server.adding) == pytest.approx(3.0 * math.sqrt(2) * 2)
    assert replace(server.plan(0), key=None).event().multipliers == (3.0, 3.0)


def numbers(released: Released, part: str) -> Tensor:
    """Return the released numbers of S or V as a vector."""
    return sums.svec(released.second).flatten() if part == "second" else released.first.flatten()


@pytest.mark.parametrize(("by_group", "second"), [(False, math.sqrt(2)), (True, 1.0)])
def test_under_local_trust_a_client_adds_noise_to_the_numbers_of_its_own_groups_alone(
        table: dict[str, Any], by_group: bool, second: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a client for each group local noise costs sqrt(K) on S, and nothing on V, nor on S by group."""
    seen: list[Released] = []
    monkeypatch.setattr("strategies.moments.release.Moments", lambda *parts: seen.append(Released(*parts)) or seen[-1])
    settings = {**table, "partition": "group", "trust": "local", "bins": 30, "options": {"by_group": by_group}}
    for nodes in (1, 2):
        made, of_each = [], []
        for sigma in (0.0, 2.0):
            made.append(run(experiment(**settings, noise_multiplier=sigma), nodes=nodes).ledger)
            of_each.append(seen[-1])
        quiet, noisy = of_each
        for part, factor in (("first", 1.0), ("second", second)):
            drawn = ((numbers(noisy, part) - numbers(quiet, part)) / (2 * math.sqrt(2) * factor)).numpy()
            assert drawn.std() == pytest.approx(1, abs=0.15), part
        assert noisy.noise_by_group == pytest.approx((2 * math.sqrt(2),) * 2)
        assert noisy.noise == pytest.approx(4)
        assert made[1].epsilon() == pytest.approx(epsilon({Release(1.0, 2.0): 1}, 1e-6, "pld"))


def test_nothing_of_a_group_leaves_without_noise_whatever_the_server_says_of_who_holds_it(node: Node) -> None:
    """A server that says a client holds no records of a group gets zeros for it, not exact sums."""
    plan = replace(round_(Flat(9.0)), trust=Trust.LOCAL)
    wanted = Wanted(2, True, (False, True) * (1 + max(node.clients)))
    found = record_moments(node, plan, wanted).sums
    everything = record_moments(node, plan, BY_GROUP).sums
    for name in found:
        assert float(everything[name][0].abs().max()) > 1
        assert not found[name][0].any()
        assert torch.allclose(found[name][1], everything[name][1], rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="says of 2 clients and groups who holds what"):
        record_moments(node, plan, Wanted(2, True, (True, True)))


def test_intersections_of_two_sensitive_attributes_are_groups_that_tau_makes_alike(table: dict[str, Any]) -> None:
    """Every intersection has a column of V and of U; with tau 0 their mean scores are the same."""
    crossed = experiment(**{**table, "group": ["sex", "job"]}, options={"tau": 0.0}, attribute_in_model=True)
    free = crossed.model_copy(update={"options": {"tau": 1.0}})
    made, before = run(crossed), run(free)
    train = made.data.train
    assert len(train.names) == 6
    assert "f & a" in train.names
    spread = []
    for result in (made, before):
        scores = train.x @ (weights(result)[1] - weights(result)[0])
        means = torch.stack([scores[train.group == k].mean() for k in range(6)])
        spread.append(float(means.max() - means.min()))
    assert spread[0] < 1e-8
    assert spread[1] > 0.5
    dealt = run(crossed.model_copy(update={"partition": "site", "clients": 4}), nodes=2)
    assert torch.allclose(weights(dealt), weights(made), rtol=0, atol=1e-10)
