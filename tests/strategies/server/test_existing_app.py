"""A Flower app of the user's own, in the form of Flower's PyTorch quickstart, with privacy by group around it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg, FedProx
from torch import Tensor, nn

from fedfair.node.node import ClientError
from fedfair.node.private_training import train_privately
from fedfair.protocol.round import Round
from simulations import run
from simulations.engines.local import LocalGrid
from strategies.server.existing_app import PrivateTraining
from tests.for_each import for_each
from tests.strategies.server.quickstart import EXPERIMENT, Train, application, around_fedavg, privately, started


def test_the_ledger_is_that_of_fedfairs_own_local_epochs() -> None:
    strategy, own = around_fedavg(), run(EXPERIMENT).ledger
    started(strategy)
    assert strategy.ledger.guaranteed_by_group() == pytest.approx(own.guaranteed_by_group())
    assert strategy.ledger.guarantee == "proved"
    for ledger in (strategy.ledger, own):  # clients add all of the noise, whoever is trusted with sums
        assert "every client adds all of it, before anything leaves" in " ".join(ledger.to_dict()["left_to_trust"])
    assert sum(strategy.ledger.events.values()) == sum(own.events.values())
    assert strategy.method.rule() != around_fedavg().method.rule()  # it learnt from the noisy counts


def test_counts_are_over_the_batches_that_clients_can_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with fewer records than a batch has all of them in it."""
    heard: list[tuple[float, float]] = []
    strategy = around_fedavg(batch_size=1000, count_noise_multiplier=1e-6)
    monkeypatch.setattr(type(strategy.method), "learn", lambda self, counts, expected: heard.append(
        (float(counts.sum()), expected)))
    started(strategy)
    records = sum(len(parts.train) for parts in EXPERIMENT.task.clients_data().values())
    assert heard == [(pytest.approx(records), records)] * 3


def test_without_noise_and_with_whole_batches_it_is_clipped_descent_averaged() -> None:
    strategy = around_fedavg(method="dpsgd", noise_multiplier=0, batch_size=1000, learning_rate=0.5)
    found = started(strategy, rounds=1)
    model, total = EXPERIMENT.task.build_model(), 0
    expected = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for parts in EXPERIMENT.task.clients_data().values():
        data, sums = parts.train, {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for x, y in zip(data.x, data.y, strict=True):
            model.zero_grad()
            nn.functional.cross_entropy(model(x[None]), y[None]).backward()
            norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
            for name, parameter in model.named_parameters():
                sums[name] += parameter.grad * min(1.0, 0.3 / float(norm))
        for name, parameter in model.named_parameters():
            expected[name] += len(data) * (parameter.detach() - 0.5 * sums[name] / len(data))
        total += len(data)
    for name, value in expected.items():
        assert torch.allclose(found[name], value / total, atol=1e-6)
    assert strategy.ledger.guarantee == "none"


@pytest.mark.parametrize("mu", [0.1, 10_000.0])
def test_the_proximal_term_of_the_app_holds_the_weights_at_no_cost(mu: float) -> None:
    """One step: the nearest point to that of plain descent and to where it began, by their weights."""
    settings: dict[str, Any] = {"method": "dpsgd", "noise_multiplier": 0, "clip_norm": 0.3, "delta": 1e-3,
                                "batch_size": 1000, "learning_rate": 0.5}
    held = PrivateTraining(FedProx(fraction_evaluate=0.0, proximal_mu=mu), ("a", "b"), **settings)
    free = PrivateTraining(FedAvg(fraction_evaluate=0.0), ("a", "b"), **settings)
    near, far, start = started(held, rounds=1), started(free, rounds=1), EXPERIMENT.task.build_model().state_dict()
    for name, value in near.items():
        assert torch.allclose(value, (far[name] + 0.5 * mu * start[name]) / (1 + 0.5 * mu), atol=1e-6)
    assert held.ledger.events == free.ledger.events


@pytest.mark.parametrize("mu", [-1.0, float("nan")])
def test_a_proximal_term_that_holds_nothing_is_refused(mu: float) -> None:
    strategy = PrivateTraining(FedProx(proximal_mu=mu), ("a", "b"), "dpsgd", noise_multiplier=1.0, clip_norm=0.3)
    with pytest.raises(ValueError, match="proximal"):
        started(strategy, rounds=1)


def test_a_round_without_any_record_is_a_sentence() -> None:
    def nothing(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
        """Train on no record, as a partition may leave a client."""
        return privately(model, x[:0], y[:0], group[:0], message)

    strategy = PrivateTraining(FedAvg(fraction_evaluate=0.0), ("a", "b"), noise_multiplier=1.0, clip_norm=0.3)
    with pytest.raises(ValueError, match="no client that answered has a record"):
        started(strategy, nothing, rounds=1)
    assert strategy.ledger.epsilon() == 0


def test_no_two_clients_or_rounds_share_their_noise() -> None:
    """The learning rate is so large that the weights are nothing but noise."""
    sent: list[Tensor] = []

    def kept(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
        before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        told = privately(model, x, y, group, message)
        sent.append(torch.cat([p.detach().flatten() for p in model.parameters()]) - before)
        return told

    started(around_fedavg(method="dpsgd", noise_multiplier=50, batch_size=1000), kept, rounds=2)
    assert len(sent) == 4
    correlation = torch.corrcoef(torch.stack(sent)).fill_diagonal_(0)
    assert float(correlation.abs().max()) < 0.95
    assert len({round(float(one[0]), 9) for one in sent}) == 4


def test_a_client_that_is_lost_later_is_charged_as_if_it_had_sent() -> None:
    strategy = around_fedavg(method="dpsgd")
    arrays, grid = ArrayRecord(EXPERIMENT.task.build_model().state_dict()), LocalGrid(application(privately), 2)
    for round_, lost in ((1, 0), (2, 1)):
        replies = list(grid.send_and_receive(strategy.configure_train(round_, arrays, ConfigRecord(), grid)))
        strategy.aggregate_train(round_, replies[lost:])
    steps = [entry.steps for entry in strategy.ledger.log.entries]
    both = around_fedavg(method="dpsgd")
    started(both, rounds=2)
    assert sum(steps) == sum(entry.steps for entry in both.ledger.log.entries)


def test_a_client_whose_first_answers_are_lost_is_charged_for_them_once_its_size_is_known() -> None:
    strategy = around_fedavg(method="dpsgd")
    arrays, grid = ArrayRecord(EXPERIMENT.task.build_model().state_dict()), LocalGrid(application(privately), 2)
    for round_ in range(1, 5):
        replies = list(grid.send_and_receive(strategy.configure_train(round_, arrays, ConfigRecord(), grid)))
        there = [reply for reply in replies if round_ >= 3 or reply.metadata.src_node_id != 3]
        strategy.aggregate_train(round_, there)
        silent = "3 1 times" if round_ == 1 else "3 2 times"
        unknown = strategy.ledger.unprotected.get("local epochs whose cost is not known", "")
        assert (silent in unknown) is (round_ < 3)
    all_there = around_fedavg(method="dpsgd")
    started(all_there, rounds=4)
    assert strategy.ledger.epsilon_by_group() == pytest.approx(all_there.ledger.epsilon_by_group())
    lost, whole = (Counter({event.rates: times for event, times in ledger.events.items()})
                   for ledger in (strategy.ledger, all_there.ledger))
    assert lost == whole  # FedAvg asks its clients in an order of its own, which numbers them


def test_what_came_is_charged_although_another_client_failed_in_the_same_round() -> None:
    strategy = around_fedavg(method="dpsgd")
    arrays, grid = ArrayRecord(EXPERIMENT.task.build_model().state_dict()), LocalGrid(application(privately), 2)
    replies = list(grid.send_and_receive(strategy.configure_train(1, arrays, ConfigRecord(), grid)))
    del replies[0].content["fedfair"]
    with pytest.raises(ClientError, match="did not train privately"):
        strategy.aggregate_train(1, replies)
    charged = {entry.event.client for entry in strategy.ledger.log.entries}
    assert len(charged) == 1
    assert f"{replies[0].metadata.src_node_id} 1 times" in strategy.ledger.unprotected[
        "local epochs whose cost is not known"]


def test_groups_may_be_numbered_in_any_type() -> None:
    def short(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
        return privately(model, x, y, group.bool(), message)

    bounds = {"method": "dpsgd-f", "noise_multiplier": 0.0, "count_noise_multiplier": 1e-9, "batch_size": 10_000}
    long, mask = (started(around_fedavg(**bounds), train) for train in (privately, short))
    assert all(torch.allclose(long[name], value) for name, value in mask.items())


def test_frozen_parameters_are_left_as_they_are() -> None:
    def frozen(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
        next(model.parameters()).requires_grad_(False)
        return privately(model, x, y, group, message)

    before = EXPERIMENT.task.build_model().state_dict()
    after = started(around_fedavg(), frozen, rounds=1)
    same = [torch.allclose(after[name], value, rtol=0, atol=1e-6) for name, value in before.items()]  # an average
    assert same == [True, False]


@pytest.mark.parametrize(("train", "message"), [
    (lambda model, x, y, group, message: None, "did not train privately"),
    (lambda model, x, y, group, message: [p.data.fill_(float("nan")) for p in model.parameters()] and {"size": 3},
     "not finite")])
def test_a_client_without_privacy_or_sense_is_refused(train: Train, message: str) -> None:
    with pytest.raises(ClientError, match=message):
        started(around_fedavg(), train, rounds=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_whose_clipping_rounding_would_undo_is_refused(dtype: torch.dtype) -> None:
    def coarse(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
        return privately(model.to(dtype), x.to(dtype), y, group, message)

    with pytest.raises(ValueError, match=r"the model is in torch\.b?float16, in which a clipped gradient can exceed"):
        started(around_fedavg(), coarse, rounds=1)


def test_discrete_noise_is_for_models_in_float64() -> None:
    def in_float64(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
        told = privately(model.double(), x.double(), y, group, message)
        model.float()
        return told

    with pytest.raises(ValueError, match=r"the model is not in float64, .* use model\.double\(\)"):
        started(around_fedavg(noise="discrete"), rounds=1)
    strategy = around_fedavg(noise="discrete")
    started(strategy, in_float64, rounds=1)
    assert strategy.ledger.epsilon() > 0


@for_each("settings", [{"sync": "epoch"}, {"randomness": "seeded"}, {"epochs": 3}, {"steps": 9},
                       {"eval_every": 2}, {"dropouts": 1}, {"trust": "local"}, {"risk_every": 5}])
def test_what_the_app_itself_says_is_no_setting(settings: dict[str, Any]) -> None:
    (field,) = settings
    with pytest.raises(ValueError, match=f"{field} is .*, but an app trains as many rounds.*: leave it out"):
        around_fedavg(**settings)


def test_groups_have_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="group 'a' is named more than once among a, b, a: give each group a name"):
        PrivateTraining(FedAvg(), ("a", "b", "a"))


def test_what_cannot_be_planned_is_refused_before_work_starts() -> None:
    with pytest.raises(ValueError, match="give noise_multiplier"):
        around_fedavg(group_epsilon=2.0)
    with pytest.raises(ValueError, match="does not train in local epochs"):
        around_fedavg(method="dp-fedavg")
    with pytest.raises(ValueError, match="an app evaluates its model itself"):
        around_fedavg(threshold="toc")
    with pytest.raises(ValueError, match="unknown strategy"):
        around_fedavg(method="dpsgdf")
    with pytest.raises(ValueError, match="not one for local training"):
        train_privately(EXPERIMENT.task.build_model(), torch.zeros(1, 5), torch.zeros(1).long(), torch.zeros(1).long(),
                        '{"key": "1", "step": 0, "rates": [1.0], "noise_multiplier": 1, "count_noise_multiplier": 1, '
                        '"trust": "central", "clients": 1, "rule": null, "query": null, "local": null, '
                        '"local_sgd": null}')


def within(epsilon: float, rounds: int, **settings: Any) -> PrivateTraining:
    settings = {"batch_size": 32, "clip_norm": 0.3, "delta": 1e-3, **settings}
    return PrivateTraining(FedAvg(fraction_evaluate=0.0), ("a", "b"), target_epsilon=epsilon, rounds=rounds, **settings)


@pytest.mark.parametrize("settings", [{"method": "dpsgd"}, {"method": "dpsgd-f"}, {"accountant": "rdp"},
                                      {"count_noise_multiplier": 20.0}, {"batch_size": 1000}])
def test_a_target_epsilon_is_met_and_never_exceeded(settings: dict[str, Any]) -> None:
    strategy = within(2.0, 3, **settings)
    plans: list[Round] = []

    def kept(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
        plans.append(Round.from_json(str(message.content["fedfair"]["plan"])))
        return privately(model, x, y, group, message)

    started(strategy, kept, rounds=2)
    assert strategy.ledger.epsilon() < 1.95
    strategy = within(2.0, 3, **settings)
    started(strategy, kept, rounds=3)
    assert 1.99 < strategy.ledger.epsilon() <= 2.0
    assert all(plan.local is not None and plan.local.noise_multipliers == () for plan in plans)
    with pytest.raises(ValueError, match="round 4 would exceed target_epsilon, whose noise is for rounds = 3"):
        strategy.configure_train(4, ArrayRecord(), ConfigRecord(), LocalGrid(application(privately), 2))


def test_the_noise_of_a_budget_is_what_the_client_adds() -> None:
    """The smaller client draws its records more often, and needs more noise; the learning rate shows it alone."""
    strategy = within(1.0, 1, method="dpsgd", learning_rate=1e6, clip_norm=1.0)
    (message,) = strategy.configure_train(1, ArrayRecord(), ConfigRecord(), LocalGrid(application(privately), 2))[:1]
    plan = Round.from_json(str(message.content["fedfair"]["plan"]))
    deviations = []
    for records in (64, 512):
        model = nn.Linear(300, 2).requires_grad_(True)
        before = model.weight.detach().clone()
        train_privately(model, torch.zeros(records, 300), torch.zeros(records).long(), torch.zeros(records).long(),
                        plan.to_json())
        steps = records // 32
        added = float((model.weight.detach() - before).std()) * 32 / 1e6 / steps**0.5
        sized = plan.of_size(records)
        assert sized.local is not None
        assert added == pytest.approx(sized.local.noise_multipliers[0], rel=0.15)
        deviations.append(sized.local.noise_multipliers[0])
    assert deviations[0] > 1.2 * deviations[1]
    with pytest.raises(IndexError):
        plan.local_event(0, (True, True))  # nobody can take the plan without its budget


@for_each(("settings", "message"), [
    ({"target_epsilon": 2.0, "rounds": 3, "noise_multiplier": 0.8},
     "target_epsilon is 2.0 and noise_multiplier is 0.8: give one of them"),
    ({"target_epsilon": 2.0}, "rounds is None: say for how many rounds it must last"),
    ({"target_epsilon": 2.0, "rounds": 0}, "rounds is 0: say for how many rounds"),
    ({"target_epsilon": -1.0, "rounds": 3}, "target_epsilon"),
    ({"noise_multiplier": 1.0, "rounds": 3}, "rounds is 3, which only target_epsilon needs")])
def test_exactly_one_of_target_and_noise_is_given(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivateTraining(FedAvg(), ("a", "b"), **settings)
