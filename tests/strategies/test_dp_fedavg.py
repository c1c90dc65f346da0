"""DP-FedAvg: against a plain loop over participants, and what it promises to each of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedfair import client_app
from fedfair.accounting import Release, epsilon
from fedfair.accounting.events import joint_multiplier
from fedfair.datasets import GroupedDataset, Parts
from fedfair.mechanisms.clipping import Flat, Unclipped
from fedfair.mechanisms.counting import AtMost
from fedfair.mechanisms.noise import Trust
from fedfair.mechanisms.randomness import generator
from fedfair.models.find import build
from fedfair.node import participant_updates as participants
from fedfair.node.node import ClientError, Node
from fedfair.node.noisy_sums import Contribution
from fedfair.protocol.round import LocalSgd, Round
from simulations import Experiment, run
from simulations.engines.local import LocalGrid
from simulations.results.result import Result
from simulations.settings.experiment import SettingsError
from strategies.dp_fedavg import DpFedavg
from strategies.server.replies.requests import population
from tests.strategies.oracle import fedavg

QUANTILE = {"participation": 0.5, "local_epochs": 2, "server_learning_rate": 0.8, "quantile": 0.3}


def experiment(**settings: Any) -> Experiment:
    return Experiment(**{"strategy": "dp-fedavg", "split": (0.3, 0.0, 0.7), "partition": "site", "clients": 23,
                         "hidden": (8,), "learning_rate": 0.3, "clip_norm": 0.4, "steps": 4, "batch_size": 8,
                         "noise_multiplier": 0.0, "options": QUANTILE, "dtype": "float64", "delta": 1e-3, **settings})


def server(made: Experiment) -> DpFedavg:
    return DpFedavg(made.task, made.training, population(LocalGrid(client_app.app, 1), made.task))


def weights(result: Result) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("options", [{**QUANTILE, "quantile": None}, QUANTILE, {**QUANTILE, "participation": 1.0}])
def test_any_number_of_nodes_equals_a_plain_loop_over_participants(options: dict[str, Any]) -> None:
    made = experiment(options=options)
    data = [(parts.train.x, parts.train.y) for parts in made.task.clients_data().values()]
    plain, _ = fedavg(made.task.build_model(), data, seed=0, rounds=4, rate=options["participation"], epochs=2, batch=8,
                      lr=0.3, clip=0.4, server_lr=0.8, quantile=options["quantile"])
    assert float(plain.norm()) > 1
    for nodes in (1, 2, 7):
        assert torch.allclose(weights(run(made, nodes=nodes)), plain, rtol=0, atol=1e-10), nodes


@pytest.mark.usefixtures("keyed_by_seed")
def test_fedavg_is_the_same_without_clipping() -> None:
    made = experiment(strategy="fedavg")
    data = [(parts.train.x, parts.train.y) for parts in made.task.clients_data().values()]
    plain, _ = fedavg(made.task.build_model(), data, seed=0, rounds=4, rate=0.5, epochs=2, batch=8, lr=0.3,
                      clip=math.inf, server_lr=0.8)
    result = run(made.model_copy(update={"noise_multiplier": 1.0}))
    assert torch.allclose(weights(result), plain, rtol=0, atol=1e-10)
    assert result.ledger.guarantee == "none"


@pytest.mark.usefixtures("keyed_by_seed")
def test_momentum_is_the_servers_and_weight_decay_the_participants() -> None:
    made = experiment(options={**QUANTILE, "server_momentum": 0.6}, weight_decay=0.2)
    data = [(parts.train.x, parts.train.y) for parts in made.task.clients_data().values()]
    plain, _ = fedavg(made.task.build_model(), data, seed=0, rounds=4, rate=0.5, epochs=2, batch=8, lr=0.3, clip=0.4,
                      server_lr=0.8, quantile=0.3, momentum=0.6, decay=0.2)
    assert torch.allclose(weights(run(made)), plain, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("keyed_by_seed")
def test_the_proximal_term_holds_participants_near_the_weights_that_they_were_sent() -> None:
    made = experiment(proximal=0.7)
    data = [(parts.train.x, parts.train.y) for parts in made.task.clients_data().values()]
    plain, _ = fedavg(made.task.build_model(), data, seed=0, rounds=4, rate=0.5, epochs=2, batch=8, lr=0.3, clip=0.4,
                      server_lr=0.8, quantile=0.3, proximal=0.7)
    assert torch.allclose(weights(run(made)), plain, rtol=0, atol=1e-10)
    assert not torch.allclose(weights(run(experiment())), plain, rtol=0, atol=1e-3)


def test_noise_and_sampling_do_not_depend_on_the_nodes_and_the_same_seed_gives_the_same_bits() -> None:
    made = experiment(noise_multiplier=1.0)
    one, again, seven = (weights(run(made, nodes=nodes)) for nodes in (1, 1, 7))
    assert torch.equal(one, again)
    assert torch.allclose(one, seven, rtol=0, atol=1e-10)
    assert not torch.allclose(one, weights(run(made.model_copy(update={"seed": 1}))))


# One node with clients of any kind.

MODEL = build("mlp", (3,), (2,), 2, 0, torch.float64)
START = {name: p.detach() for name, p in MODEL.named_parameters()}


def part(records: int, scale: float, seed: int) -> GroupedDataset:
    draws = generator(seed, "test")
    x = scale * torch.randn(records, 2, generator=draws, dtype=torch.float64)
    y = torch.randint(2, (records,), generator=draws)
    return GroupedDataset(x, y, torch.zeros(records).long(), ("everybody",), 2)


def released(clients: dict[int, GroupedDataset], clip: float, rate: float = 1.0, lr: float = 0.5, **more: Any
             ) -> Contribution:
    """Return what a node with these clients answers, without noise unless asked for."""
    here = Node({number: Parts(data, data, data) for number, data in clients.items()}, MODEL, "cpu")
    round_ = Round(**{"key": "3", "step": 5, "rates": (rate,), "noise_multiplier": 0.0, "count_noise_multiplier": 0.0,
                      "trust": Trust.CENTRAL, "clients": 20, "rule": Flat(clip), "query": AtMost(clip),
                      "local_sgd": LocalSgd(epochs=2, batch_size=4, learning_rate=lr, weight_decay=0.0, seed=3),
                      **more})
    return participants.update_sum(here, START, round_)


def distance(a: Contribution, b: Contribution) -> tuple[float, float]:
    """Return the distance between two answers, in Euclidean norm: of the sums, and of the counts."""
    assert a.counts is not None
    assert b.counts is not None
    sums = torch.cat([(a.sums[name] - b.sums[name]).flatten() for name in a.sums])
    return float(sums.norm()), float((a.counts - b.counts).norm())


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0, 1e3), st.integers(0, 99)), min_size=1, max_size=5),
       st.floats(1e-3, 10), st.sampled_from([0.3, 1.0]), st.data())
def test_one_participant_moves_the_sum_by_the_clip_norm_at_most(described: list[tuple[int, float, int]], clip: float,
                                                                rate: float, data: st.DataObject) -> None:
    clients = {number: part(*kind) for number, kind in enumerate(described)}
    left_out = data.draw(st.sampled_from(sorted(clients)))
    others = {number: held for number, held in clients.items() if number != left_out}
    if others:
        moved, counted = distance(released(clients, clip, rate), released(others, clip, rate))
        assert moved <= clip * (1 + 1e-9)
        assert counted <= 1


def test_a_participant_can_move_the_sum_by_the_whole_clip_norm() -> None:
    clients = {number: part(9, 5.0, number) for number in range(4)}
    moved, _ = distance(released(clients, 0.1), released({n: c for n, c in clients.items() if n != 2}, 0.1))
    assert moved == pytest.approx(0.1)


def test_how_many_records_a_participant_has_does_not_matter_to_what_it_may_add() -> None:
    for records in (1, 500):
        sums = released({0: part(records, 50.0, 1)}, 0.01).sums
        assert float(torch.cat([value.flatten() for value in sums.values()]).norm()) <= 0.01 * (1 + 1e-9)


def test_nobody_drawn_and_participants_without_records_give_zeros_that_are_no_nan() -> None:
    """Hazard 9: a zero update has no norm to divide by."""
    for clients, rate in (({0: part(9, 1.0, 0)}, 0.0), ({0: part(0, 1.0, 0), 4: part(0, 1.0, 1)}, 1.0)):
        answer = released(clients, 0.1, rate)
        assert all(bool((value == 0).all()) for value in answer.sums.values())
        assert answer.counts is not None
        assert int(answer.counts) == (len(clients) if rate else 0)  # an update of zero is not clipped


def test_an_update_that_is_not_finite_adds_nothing_and_is_not_counted() -> None:
    """Hazards 9 and 31: Flower lets a NaN pass its clip; an error would reveal it."""
    broken = part(9, 1.0, 0)
    broken.x[3, 1] = math.nan
    with_it, without = (released(clients, 0.1) for clients in ({4: part(9, 1.0, 0), 11: broken}, {4: part(9, 1.0, 0)}))
    assert distance(with_it, without) == (0, 0)


def test_an_update_that_is_not_finite_is_refused_and_its_owner_named_where_nothing_is_clipped() -> None:
    broken = part(9, 1.0, 0)
    broken.x[3, 1] = math.nan
    with pytest.raises(ClientError, match="client 11 has an update that is not finite at step 5"):
        released({4: part(9, 1.0, 0), 11: broken}, 0.1, rule=Unclipped())


@pytest.mark.parametrize(("trust", "variance"), [(Trust.CENTRAL, 0.0), (Trust.DISTRIBUTED, 3 / 20), (Trust.LOCAL, 3.0)])
def test_every_client_adds_its_share_of_noise_whether_it_is_drawn_or_not(trust: Trust, variance: float) -> None:
    model = build("mlp", (400,), (20,), 10, 0, torch.float64)
    start = {name: p.detach() for name, p in model.named_parameters()}
    empty = GroupedDataset(torch.zeros(0, 20), torch.zeros(0).long(), torch.zeros(0).long(), ("everybody",), 10)
    here = Node({number: Parts(empty, empty, empty) for number in range(3)}, model, "cpu")
    round_ = Round(key="3", step=5, rates=(0.5,), noise_multiplier=2.0, trust=trust, clients=20, rule=Flat(0.1),
                   local_sgd=LocalSgd(epochs=1, batch_size=4, learning_rate=0.1, weight_decay=0.0, seed=3))
    sums = participants.update_sum(here, start, round_).sums
    drawn = torch.cat([value.flatten() for value in sums.values()]).numpy()
    if trust is Trust.CENTRAL:
        assert not drawn.any()
        return
    deviation = 2.0 * 0.1 * math.sqrt(variance)
    assert stats.kstest(drawn / deviation, "norm").pvalue > 1e-3
    assert stats.kstest(drawn / deviation * 1.5, "norm").pvalue < 1e-3
    assert stats.kstest(drawn / deviation / 1.5, "norm").pvalue < 1e-3


def test_the_noise_is_that_of_the_clip_norm_that_clipped_not_of_the_next() -> None:
    """Hazard 8: Flower scales the noise of a round by the clip norm of the next."""
    options = {**QUANTILE, "clip_learning_rate": 8.0}
    settings = {"options": options, "steps": 1, "hidden": (200,), "clip_norm": 1e-3, "count_noise_multiplier": 1e-9}
    quiet, noisy = (run(experiment(noise_multiplier=noise, **settings)) for noise in (0.0, 3.0))
    deviation = 0.8 * 3.0 * 1e-3 / (0.5 * 23)
    drawn = ((weights(noisy) - weights(quiet)) / deviation).numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert stats.kstest(drawn * 1.5, "norm").pvalue < 1e-4


def test_the_clip_norm_grows_when_too_many_are_clipped_and_shrinks_when_too_few() -> None:
    """Hazard 8: with the bit inverted it runs away."""
    strategy = server(experiment())
    expected = 0.5 * 23
    for below, factor in ((0.0, math.exp(0.2 * 0.3)), (expected, math.exp(-0.2 * 0.7)), (0.3 * expected, 1.0)):
        before = strategy.clip_norm
        strategy.learn(torch.tensor([below]), strategy.expected_batch())
        assert strategy.clip_norm == pytest.approx(before * factor)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("first", [1e-2, 50.0])
def test_the_clip_norm_converges_to_the_quantile_of_the_norms(quantile: float, first: float) -> None:
    made = experiment(options={**QUANTILE, "participation": 1.0, "quantile": quantile}, clip_norm=first, clients=200)
    strategy, draws = server(made), generator(0, "test")
    norms = torch.randn(200, generator=draws, dtype=torch.float64).exp()
    for _ in range(150):
        noise = 5 * float(torch.randn((), generator=draws))
        strategy.learn((norms <= strategy.clip_norm).sum().view(1) + noise, strategy.expected_batch())
    assert float((norms <= strategy.clip_norm).double().mean()) == pytest.approx(quantile, abs=0.05)


def test_no_count_however_noisy_ends_a_run() -> None:
    strategy = server(experiment())
    for count in (1e9, -1e9):
        for _ in range(3):
            strategy.learn(torch.tensor([count]), strategy.expected_batch())
        assert strategy.clip_norm == pytest.approx(0.4 * (1e-6 if count > 0 else 1e6))


def test_the_ledger_protects_participants_and_charges_sum_and_count_as_one_event() -> None:
    ledger = run(experiment(noise_multiplier=2.0, count_noise_multiplier=5.0)).ledger
    joint = joint_multiplier(2.0, 5.0)
    assert joint == pytest.approx((2.0**-2 + 5.0**-2) ** -0.5)
    assert ledger.epsilon() == epsilon({Release(0.5, joint): 4}, 1e-3)
    assert set(ledger.guaranteed_by_group().values()) == {ledger.epsilon()}
    assert (ledger.protects, ledger.guarantee) == ("participant", "simulated")
    told = ledger.to_dict()
    assert told["protects"] == "participant"
    assert told["public_by_assumption"] == ("names of groups and classes, number of participants, expected number of "
                                            "them in a round")
    assert "numbers of records of each participant by group" in told["not_protected"]
    assert ledger.from_dict(told).to_dict() == told
    assert ledger.by_observer()["server"] == math.inf
    local = run(experiment(noise_multiplier=2.0, trust="local")).ledger
    assert local.by_observer()["server"] == local.epsilon()


def test_the_length_of_a_run_does_not_depend_on_the_records() -> None:
    """Numbers of records are not public here: a participant may bring any number."""
    strategy = server(experiment(steps=None, epochs=10))
    assert strategy.rounds == 10  # 1 / (0.5 * 2) rounds an epoch
    assert server(experiment(steps=None, epochs=10, imbalance="8:5")).rounds == 10


@pytest.mark.parametrize(("settings", "message"), [
    ({"sync": "step"}, "sync is 'step', but dp-fedavg runs only with sync = 'epoch'"),
    ({"options": {"participation": 0}}, "participation is 0: it should be greater than 0"),
    ({"options": {"quantile": 1.0}}, "quantile is 1.0: it should be less than 1"),
    ({"partition": "natural"}, "clients is 23, but with partition natural every participant is a client")])
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        experiment(**settings)


def test_another_local_optimiser_and_data_without_participants_are_refused() -> None:
    with pytest.raises(ValueError, match="dp-fedavg trains each participant by plain SGD, but optimizer is 'adam'"):
        run(experiment(optimizer="adam"))
    with pytest.raises(ValueError, match=r"momentum 0\.5: take sgd and 0; the server's is options\.server_momentum"):
        run(experiment(momentum=0.5))
    with pytest.raises(ClientError, match="digits does not say whose its records are"):
        run(experiment(partition="natural", clients=None))
